#include "layout/memory_units.h"

#include <algorithm>

#include "layout/slot_map.h"

namespace lockstep::layout {
namespace {

constexpr int64_t kFloat = 4;

// FoldTree::push: partial sums that are open together at most while `runs` are pushed in order.
int64_t most_partials(const std::vector<SlotRun>& runs) {
  std::vector<SlotRun> open;
  size_t most = 0;
  for (const SlotRun& run : runs) {
    if (!open.empty() && halves(open.back(), run)) {
      open.back().count += run.count;
    } else {
      open.push_back(run);
      most = std::max(most, open.size());
    }
    while (open.size() > 1 && halves(open[open.size() - 2], open.back())) {
      open[open.size() - 2].count += open.back().count;
      open.pop_back();
    }
  }
  return static_cast<int64_t>(most);
}

std::vector<SlotRun> single_slots(const SlotRun& run) {
  std::vector<SlotRun> slots;
  for (int64_t slot = run.first; slot < run.end(); ++slot) slots.push_back({slot, 1});
  return slots;
}

size_t longest(const std::vector<std::vector<SlotRun>>& lists) {
  size_t most = 0;
  for (const auto& list : lists) most = std::max(most, list.size());
  return most;
}

// Unit::runs_in_group, runs_among_groups, sums_in_group; Shipment::start takes a buffer a piece.
// The fullest round, which under cyclic is the first.
void count_pieces(Spread& s, const SlotMap& map) {
  const int members = static_cast<int>(s.shard_size), groups = static_cast<int>(s.copies());
  const auto of_group = [&](int group) {
    std::vector<std::vector<SlotRun>> runs;
    for (int m = 0; m < members; ++m)
      runs.push_back(subtrees_of(map.run_of(0, group * members + m, 1)));
    return runs;
  };
  s.pieces_in_group = static_cast<int64_t>(longest(of_group(0)));
  std::vector<std::vector<SlotRun>> as_they_are, summed;
  int64_t plain_bytes = 0, summed_bytes = 0;
  for (int g = 0; g < groups; ++g) {
    std::vector<SlotRun> list;
    for (const auto& one : of_group(g)) list.insert(list.end(), one.begin(), one.end());
    plain_bytes += static_cast<int64_t>(list.size()) * s.piece_bytes();
    summed.push_back(subtrees_of(map.run_of(0, g * members, members)));
    summed_bytes += static_cast<int64_t>(summed.back().size()) * kFloat;
    as_they_are.push_back(std::move(list));
  }
  s.sums_in_group = s.copies() > 1 && summed_bytes < plain_bytes;
  s.group_partials = s.sums_in_group ? most_partials(as_they_are[0]) : 0;
  const auto& shipped = s.sums_in_group ? summed : as_they_are;
  s.pieces_among_groups = static_cast<int64_t>(longest(shipped));
  std::vector<SlotRun> pushed;  // into fold_, over the step
  if (s.block)
    for (const auto& list : shipped) pushed.insert(pushed.end(), list.begin(), list.end());
  else
    pushed = single_slots({0, map.slots});
  s.fold_partials = most_partials(pushed);
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
Spread Spread::create(const Config& config, int64_t world_size, int64_t local_world_size) {
  const int ranks = static_cast<int>(world_size);
  Spread s;
  s.world_size = world_size;
  s.shard_size = layout::shard_size(config, ranks, static_cast<int>(local_world_size));
  s.keep_gathered = config.parallelism.strategy == ShardingStrategy::kShardGradOp;
  s.block = config.parallelism.slot_map == SlotMapKind::kBlock && world_size > 1;
  s.native = config.training.reduction == Reduction::kNative;
  s.wire_bytes = config.training.mixed_precision_param == FloatType::kBfloat16 ? 2 : 4;
  const SlotMap map{s.block, config.slots(), ranks};
  s.rounds = map.rounds();
  count_pieces(s, map);
  if (config.training.reduction != Reduction::kTree)
    s.fold_partials = std::min<int64_t>(2, s.rounds);
  if (s.block) s.local_partials = most_partials(single_slots(map.run_of(0, 0, 1)));
  return s;
}

// Unit::Unit: master_S, adam_m_S, adam_v_S, compute_S_; local_, group_ and fold_, whose tensors
// come with the pushes and stay; make_weights, which takes a buffer and gives it back.
UnitMemory::UnitMemory(const UnitSpec& spec, const Spread& spread, MemoryLedger& ledger,
                       PoolMemory& pool)
    : spec_(spec),
      spread_(spread),
      ledger_(ledger),
      pool_(pool),
      tiles_per_rank_((spec.tiles() + spread.world_size - 1) / spread.world_size),
      summed_(spec.params.size(), false) {
  const bool copied = spread_.wire_bytes != kFloat;
  if (copied) ledger_.hold(MemoryUse::kComputeCopy, held_elements() * spread_.wire_bytes);
  if (!frozen() || !copied) ledger_.hold(MemoryUse::kMaster, held_elements() * kFloat);
  if (!frozen()) {
    ledger_.hold(MemoryUse::kOptimizer, 2 * held_elements() * kFloat);
    ledger_.hold(MemoryUse::kFold, (spread_.local_partials * padded_elements() +
                                    spread_.group_partials * held_elements() +
                                    spread_.fold_partials * owned_elements()) *
                                       kFloat);
  }
  start_gather();
  release();
}

void UnitMemory::start_gather() {
  if (spread_.shard_size == 1 || gathered_) return;
  pool_.take(MemoryUse::kGathered, wire_size());
  gathered_ = true;
}

void UnitMemory::release() {
  if (!gathered_) return;
  pool_.give(MemoryUse::kGathered, wire_size());
  gathered_ = false;
}

// Unit::begin_grads: send_U_
void UnitMemory::grad() {
  if (sending_ || frozen()) return;
  pool_.take(MemoryUse::kExchange, wire_size());
  sending_ = true;
}

// Unit::grad_sum: sums_[param], made once and kept; with an fp32 wire the exchange buffer itself
void UnitMemory::grad_sum(int param) {
  const size_t i = static_cast<size_t>(param);
  if (spread_.wire_bytes == kFloat) return grad();
  if (summed_[i] || frozen()) return;
  summed_[i] = true;
  ledger_.hold(MemoryUse::kGradSums, spec_.params[i].elements() * kFloat);
}

void UnitMemory::give_gradients() {
  if (!sending_) return;
  pool_.give(MemoryUse::kExchange, wire_size());
  sending_ = false;
}

int64_t UnitMemory::among_bytes() const {
  return padded_elements() / spread_.shard_size *
         (spread_.sums_in_group ? kFloat : spread_.piece_bytes());
}

// Unit::start_exchange: round_sums; under block into local_, until the last round; in_group_.start.
// start_native: native_U_.
void UnitMemory::start_exchange(bool last_round) {
  grad();
  if (spread_.native) return ledger_.hold(MemoryUse::kExchange, padded_elements() * kFloat);
  if (spread_.block) {
    give_gradients();
    if (!last_round) return;
  }
  leg_ = Leg::kInGroup;
  for (int64_t k = 0; spread_.shard_size > 1 && k < spread_.pieces_in_group; ++k)
    pool_.take(MemoryUse::kExchange, padded_elements() * spread_.piece_bytes());
}

// start_second_leg: among_groups_.start
void UnitMemory::advance_exchange() {
  if (leg_ != Leg::kInGroup || spread_.copies() == 1) return;
  leg_ = Leg::kAmongGroups;
  for (int64_t k = 0; k < spread_.pieces_among_groups; ++k)
    pool_.take(MemoryUse::kExchange, among_bytes());
}

void UnitMemory::finish_exchange() {
  if (spread_.native) {
    ledger_.drop(MemoryUse::kExchange, padded_elements() * kFloat);
    return give_gradients();
  }
  if (leg_ == Leg::kNone) return;
  advance_exchange();
  for (int64_t k = 0; leg_ == Leg::kAmongGroups && k < spread_.pieces_among_groups; ++k)
    pool_.give(MemoryUse::kExchange, among_bytes());
  for (int64_t k = 0; spread_.shard_size > 1 && k < spread_.pieces_in_group; ++k)
    pool_.give(MemoryUse::kExchange, padded_elements() * spread_.piece_bytes());
  give_gradients();
  leg_ = Leg::kNone;
}

}  // namespace lockstep::layout
