#include "layout/memory_units.h"

#include "layout/best_fit.h"
#include "layout/muon_plan.h"

namespace lockstep::layout {
int64_t PoolMemory::take(MemoryUse use, int64_t bytes) {
  const auto found = best_fit(idle_, bytes);
  if (found == idle_.end()) {
    ledger_.hold(use, bytes);
    return bytes;
  }
  const int64_t buffer_bytes = found->first;
  if (--found->second == 0) idle_.erase(found);
  ledger_.turn(MemoryUse::kPoolIdle, use, buffer_bytes);
  return buffer_bytes;
}

void PoolMemory::give(MemoryUse use, int64_t buffer_bytes) {
  ++idle_[buffer_bytes];
  ledger_.turn(use, MemoryUse::kPoolIdle, buffer_bytes);
}

// GatheredParams takes a buffer for its views and gives it back.
UnitMemory::UnitMemory(const UnitSpec& spec, const Strategy& strategy, int rank,
                       MemoryLedger& ledger, PoolMemory& pool)
    : spec_(spec),
      strategy_(strategy),
      ledger_(ledger),
      pool_(pool),
      layout_(strategy.layout_of(spec)),
      summed_(spec.params.size(), false) {
  const int64_t held = layout_.held_elements();
  const ShardTensors kept = strategy.tensors_of(frozen(), /*state_elsewhere=*/false);
  if (kept.copy) ledger_.hold(MemoryUse::kComputeCopy, held * strategy.compute_bytes());
  if (kept.master) ledger_.hold(MemoryUse::kMaster, held * kFloat);
  if (kept.optimizer) {
    const int64_t muons = strategy.muon
                              ? muon_elements(spec, segments_of(spec, layout_.first_held_tile(rank),
                                                                layout_.held_tile_count(rank)))
                              : 0;
    ledger_.hold(MemoryUse::kOptimizer, (2 * held - muons) * strategy.moment_bytes());
  }
  if (strategy.keep_joint_part)
    ledger_.hold(MemoryUse::kJointParts, layout_.joint_elements() * strategy.compute_bytes());
  start_gather();
  release();
}

void UnitMemory::start_gather() {
  if (strategy_.sizes.shard == 1 || !gathered_.empty()) return;
  gathered_ = {pool_.take(MemoryUse::kGathered, compute_size())};
}

void UnitMemory::release() { give_all(MemoryUse::kGathered, gathered_); }

void UnitMemory::grad() {
  if (!sending_.empty() || frozen()) return;
  sending_ = {pool_.take(MemoryUse::kExchange, compute_size())};
}

// Kept until the slot's gradients leave; in fp32 it is the exchange buffer itself.
void UnitMemory::grad_sum(int param) {
  const size_t i = static_cast<size_t>(param);
  if (!strategy_.bf16) return grad();
  if (summed_[i] || frozen()) return;
  summed_[i] = true;
  sums_.push_back(pool_.take(MemoryUse::kGradSums, spec_.params[i].elements() * kFloat));
}

void UnitMemory::give_all(MemoryUse use, std::vector<int64_t>& buffers) {
  for (const int64_t bytes : buffers) pool_.give(use, bytes);
  buffers.clear();
}

// Shipment::start
std::vector<int64_t> UnitMemory::receive(const Leg& leg, int64_t part_elements) {
  std::vector<int64_t> buffers;
  for (size_t k = 0; k < leg.buffers(); ++k)
    buffers.push_back(
        pool_.take(MemoryUse::kExchange, leg.buffer_elements(part_elements) * leg.element_bytes()));
  return buffers;
}

void UnitMemory::start_exchange(const ExchangePlan& plan) {
  if (plan.slot) grad();  // the sums inside the slot are rounded into it
  give_all(MemoryUse::kGradSums, sums_);
  summed_.assign(summed_.size(), false);
  if (plan.sums_slots) give_all(MemoryUse::kExchange, sending_);
  if (!plan.travels) return;
  travelling_ = &plan;
  if (plan.native)
    ledger_.hold(MemoryUse::kExchange, layout_.padded_elements() * kFloat);
  else
    in_group_ = receive(plan.in_group, layout_.joint_elements());
}

void UnitMemory::advance_exchange() {
  if (travelling_ == nullptr || second_leg_ || !travelling_->two_legs()) return;
  second_leg_ = true;
  among_groups_ = receive(travelling_->among_groups, layout_.owned_elements());
}

void UnitMemory::finish_exchange() {
  if (travelling_ == nullptr) return;
  advance_exchange();
  give_all(MemoryUse::kExchange, among_groups_);
  if (travelling_->native) ledger_.drop(MemoryUse::kExchange, layout_.padded_elements() * kFloat);
  give_all(MemoryUse::kExchange, in_group_);
  give_all(MemoryUse::kExchange, sending_);
  travelling_ = nullptr;
  second_leg_ = false;
}

}  // namespace lockstep::layout
