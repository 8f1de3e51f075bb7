#include "model_spec/memory_units.h"

#include <algorithm>

namespace lockstep::model_spec {
namespace {

constexpr int64_t kFloat = 4;

// Slots [first, first + count); core/sharding/slot_map.h has the same arithmetic for the ranks
// themselves, as the three functions below.
struct Run {
  int64_t first, count;
  int64_t end() const { return first + count; }
};

bool halves(const Run& a, const Run& b) {
  return a.count == b.count && a.end() == b.first && a.first % (2 * a.count) == 0;
}

std::vector<Run> subtrees_of(const Run& run) {
  std::vector<Run> nodes;
  for (int64_t at = run.first; at < run.end();) {
    int64_t count = 1;
    while (at % (2 * count) == 0 && at + 2 * count <= run.end()) count *= 2;
    nodes.push_back({at, count});
    at += count;
  }
  return nodes;
}

// Slots of the ranks [rank, rank + ranks) in round 0, or under block of the step.
Run run_of(const Spread& s, int64_t slots, int64_t rank, int64_t ranks) {
  const auto first = [&](int64_t r) {
    return s.block ? r * slots / s.world_size : std::min(slots, r);
  };
  return {first(rank), first(rank + ranks) - first(rank)};
}

// FoldTree::push: partial sums that are open together at most while `runs` are pushed in order.
int64_t most_partials(const std::vector<Run>& runs) {
  std::vector<Run> open;
  size_t most = 0;
  for (const Run& run : runs) {
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

std::vector<Run> single_slots(const Run& run) {
  std::vector<Run> slots;
  for (int64_t slot = run.first; slot < run.end(); ++slot) slots.push_back({slot, 1});
  return slots;
}

size_t longest(const std::vector<std::vector<Run>>& lists) {
  size_t most = 0;
  for (const auto& list : lists) most = std::max(most, list.size());
  return most;
}

// core/sharding/strategy.cc: shard_size
int64_t shard_size(const Config& config, int64_t world_size, int64_t local_world_size) {
  const std::string& name = config.parallelism.strategy;
  if (name == "single" || name == "ddp") return 1;
  if (name != "hybrid") return world_size;
  const int64_t wanted = config.parallelism.data_parallel_shard_degree;
  int64_t size = std::clamp<int64_t>(wanted > 0 ? wanted : local_world_size, 1, world_size);
  while (world_size % size != 0) ++size;
  return size;
}

// Unit::runs_in_group, runs_among_groups, sums_in_group; Shipment::start takes a buffer a piece.
// The fullest round, which under cyclic is the first.
void count_pieces(Spread& s, int64_t slots) {
  const auto of_group = [&](int64_t group) {
    std::vector<std::vector<Run>> runs;
    for (int64_t m = 0; m < s.shard_size; ++m)
      runs.push_back(subtrees_of(run_of(s, slots, group * s.shard_size + m, 1)));
    return runs;
  };
  s.pieces_in_group = static_cast<int64_t>(longest(of_group(0)));
  std::vector<std::vector<Run>> as_they_are, summed;
  int64_t plain_bytes = 0, summed_bytes = 0;
  for (int64_t g = 0; g < s.copies(); ++g) {
    std::vector<Run> list;
    for (const auto& one : of_group(g)) list.insert(list.end(), one.begin(), one.end());
    plain_bytes += static_cast<int64_t>(list.size()) * s.piece_bytes();
    summed.push_back(subtrees_of(run_of(s, slots, g * s.shard_size, s.shard_size)));
    summed_bytes += static_cast<int64_t>(summed.back().size()) * kFloat;
    as_they_are.push_back(std::move(list));
  }
  s.sums_in_group = s.copies() > 1 && summed_bytes < plain_bytes;
  s.group_partials = s.sums_in_group ? most_partials(as_they_are[0]) : 0;
  const auto& shipped = s.sums_in_group ? summed : as_they_are;
  s.pieces_among_groups = static_cast<int64_t>(longest(shipped));
  std::vector<Run> pushed;  // into fold_, over the step
  if (s.block)
    for (const auto& list : shipped) pushed.insert(pushed.end(), list.begin(), list.end());
  else
    pushed = single_slots({0, slots});
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
  const int64_t slots = config.slots();
  Spread s;
  s.world_size = world_size;
  s.shard_size = model_spec::shard_size(config, world_size, local_world_size);
  s.keep_gathered = config.parallelism.strategy == "shard_grad_op";
  s.block = config.parallelism.slot_map == "block" && world_size > 1;
  s.native = config.training.reduction == "native";
  s.wire_bytes = config.training.mixed_precision_param == "bfloat16" ? 2 : 4;
  s.rounds = (slots + world_size - 1) / world_size;
  count_pieces(s, slots);
  if (config.training.reduction != "tree") s.fold_partials = std::min<int64_t>(2, s.rounds);
  if (s.block) s.local_partials = most_partials(single_slots(run_of(s, slots, 0, 1)));
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
  ledger_.hold(MemoryUse::kMaster, held_elements() * kFloat);
  ledger_.hold(MemoryUse::kOptimizer, 2 * held_elements() * kFloat);
  if (spread_.wire_bytes != kFloat)
    ledger_.hold(MemoryUse::kComputeCopy, held_elements() * spread_.wire_bytes);
  ledger_.hold(MemoryUse::kFold,
               (spread_.local_partials * padded_elements() +
                spread_.group_partials * held_elements() +
                spread_.fold_partials * owned_elements()) * kFloat);
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

}  // namespace lockstep::model_spec
