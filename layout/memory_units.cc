#include "layout/memory_units.h"

namespace lockstep::layout {
namespace {

constexpr int64_t kFloat = 4;

}  // namespace

void PoolMemory::take(MemoryUse use, int64_t bytes) {
  int64_t& idle = idle_[bytes];
  if (idle == 0) return ledger_.hold(use, bytes);
  --idle;
  ledger_.turn(MemoryUse::kPoolIdle, use, bytes);
}

void PoolMemory::give(MemoryUse use, int64_t bytes) {
  ++idle_[bytes];
  ledger_.turn(use, MemoryUse::kPoolIdle, bytes);
}

// GatheredParams takes a buffer for its views and gives it back.
UnitMemory::UnitMemory(const UnitSpec& spec, const Strategy& strategy, const OpenSums& sums,
                       MemoryLedger& ledger, PoolMemory& pool)
    : spec_(spec),
      strategy_(strategy),
      ledger_(ledger),
      pool_(pool),
      layout_(ShardLayout::create(spec.tiles(), strategy.map.world_size, strategy.shard_size)),
      summed_(spec.params.size(), false) {
  const int64_t held = layout_.held_elements();
  const ShardTensors kept = strategy.tensors_of(frozen(), /*state_elsewhere=*/false);
  if (kept.copy) ledger_.hold(MemoryUse::kComputeCopy, held * strategy.compute_bytes());
  if (kept.master) ledger_.hold(MemoryUse::kMaster, held * kFloat);
  if (kept.optimizer) ledger_.hold(MemoryUse::kOptimizer, 2 * held * kFloat);
  if (!frozen())
    ledger_.hold(MemoryUse::kFold, (sums.of_rank * layout_.padded_elements() +
                                    sums.of_group * held + sums.of_all * layout_.owned_elements()) *
                                       kFloat);
  start_gather();
  release();
}

void UnitMemory::start_gather() {
  if (strategy_.shard_size == 1 || gathered_) return;
  pool_.take(MemoryUse::kGathered, compute_size());
  gathered_ = true;
}

void UnitMemory::release() {
  if (!gathered_) return;
  pool_.give(MemoryUse::kGathered, compute_size());
  gathered_ = false;
}

void UnitMemory::grad() {
  if (sending_ || frozen()) return;
  pool_.take(MemoryUse::kExchange, compute_size());
  sending_ = true;
}

// Made once and kept; in fp32 it is the exchange buffer itself.
void UnitMemory::grad_sum(int param) {
  const size_t i = static_cast<size_t>(param);
  if (!strategy_.bf16) return grad();
  if (summed_[i] || frozen()) return;
  summed_[i] = true;
  ledger_.hold(MemoryUse::kGradSums, spec_.params[i].elements() * kFloat);
}

void UnitMemory::give_gradients() {
  if (!sending_) return;
  pool_.give(MemoryUse::kExchange, compute_size());
  sending_ = false;
}

// Shipment
void UnitMemory::each_buffer(const Leg& leg, int64_t part_elements, Transfer transfer) {
  for (size_t k = 0; k < leg.buffers(); ++k)
    (pool_.*transfer)(MemoryUse::kExchange,
                      leg.buffer_elements(part_elements) * leg.element_bytes());
}

void UnitMemory::start_exchange(const ExchangePlan& plan) {
  grad();  // the sums inside the slot are rounded into it
  if (plan.sums_slots) give_gradients();
  if (!plan.travels) return;
  travelling_ = &plan;
  if (plan.native)
    ledger_.hold(MemoryUse::kExchange, layout_.padded_elements() * kFloat);
  else
    each_buffer(plan.in_group, layout_.held_elements(), &PoolMemory::take);
}

void UnitMemory::advance_exchange() {
  if (travelling_ == nullptr || second_leg_ || !travelling_->two_legs()) return;
  second_leg_ = true;
  each_buffer(travelling_->among_groups, layout_.owned_elements(), &PoolMemory::take);
}

void UnitMemory::finish_exchange() {
  if (travelling_ == nullptr) return;
  advance_exchange();
  each_buffer(travelling_->among_groups, layout_.owned_elements(), &PoolMemory::give);
  if (travelling_->native) ledger_.drop(MemoryUse::kExchange, layout_.padded_elements() * kFloat);
  each_buffer(travelling_->in_group, layout_.held_elements(), &PoolMemory::give);
  give_gradients();
  travelling_ = nullptr;
  second_leg_ = false;
}

}  // namespace lockstep::layout
