#include "model_spec/memory_units.h"

namespace lockstep::model_spec {
namespace {

constexpr int64_t kFloat = 4;

// core/sharding/fold_tree.cc: an odd push opens a partial sum, an even one merges without another.
int64_t most_partials(int64_t slots) {
  int64_t partials = 0;
  for (int64_t open = slots + 1; open > 1; open /= 2) ++partials;
  return partials;
}

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

// core/sharding/strategy.cc
Spread Spread::create(const Config& config, int64_t world_size) {
  Spread s;
  s.world_size = world_size;
  s.replicate_state = config.parallelism.strategy != "full_shard";
  s.wire_bytes = config.training.mixed_precision_param == "bfloat16" ? 2 : 4;
  s.native = config.training.reduction == "native";
  const int64_t rounds = (config.slots() + world_size - 1) / world_size;
  s.fold_partials = config.training.reduction == "tree" ? most_partials(config.slots())
                                                        : std::min<int64_t>(2, rounds);
  return s;
}

// Unit::Unit: master_S, adam_m_S, adam_v_S, compute_S_; fold_ (its tensors come with the pushes and
// stay); make_weights, which takes a buffer and gives it back.
UnitMemory::UnitMemory(const UnitSpec& spec, const Spread& spread, MemoryLedger& ledger,
                       PoolMemory& pool)
    : spec_(spec),
      spread_(spread),
      ledger_(ledger),
      pool_(pool),
      tiles_per_rank_((spec.tiles() + spread.world_size - 1) / spread.world_size),
      resident_(spread.replicate_state || spread.world_size == 1),
      summed_(spec.params.size(), false) {
  const int64_t held = resident_ ? padded_elements() : shard_elements();
  ledger_.hold(MemoryUse::kMaster, held * kFloat);
  ledger_.hold(MemoryUse::kOptimizer, 2 * held * kFloat);
  if (spread_.wire_bytes != kFloat)
    ledger_.hold(MemoryUse::kComputeCopy, held * spread_.wire_bytes);
  ledger_.hold(MemoryUse::kFold, spread_.fold_partials * shard_elements() * kFloat);
  start_gather();
  release();
}

void UnitMemory::start_gather() {
  if (resident_ || gathered_) return;
  pool_.take(MemoryUse::kGathered, wire_size());
  gathered_ = true;
}

void UnitMemory::release() {
  if (resident_ || !gathered_) return;
  pool_.give(MemoryUse::kGathered, wire_size());
  gathered_ = false;
}

// Unit::begin_grads: send_U_
void UnitMemory::grad() {
  if (sending_) return;
  pool_.take(MemoryUse::kExchange, wire_size());
  sending_ = true;
}

// Unit::grad_sum: sums_[param], made once and kept; with an fp32 wire the exchange buffer itself
void UnitMemory::grad_sum(int param) {
  const size_t i = static_cast<size_t>(param);
  if (spread_.wire_bytes == kFloat) return grad();
  if (summed_[i]) return;
  summed_[i] = true;
  ledger_.hold(MemoryUse::kGradSums, spec_.params[i].elements() * kFloat);
}

// Unit::start_exchange: sums are rounded into send_U_; received_
void UnitMemory::start_exchange() {
  grad();
  if (spread_.native) return ledger_.hold(MemoryUse::kExchange, padded_elements() * kFloat);
  if (spread_.world_size == 1) return;
  pool_.take(MemoryUse::kExchange, wire_size());
  receiving_ = true;
}

void UnitMemory::finish_exchange() {
  if (spread_.native) ledger_.drop(MemoryUse::kExchange, padded_elements() * kFloat);
  if (receiving_) pool_.give(MemoryUse::kExchange, wire_size());
  pool_.give(MemoryUse::kExchange, wire_size());
  sending_ = receiving_ = false;
}

}  // namespace lockstep::model_spec
