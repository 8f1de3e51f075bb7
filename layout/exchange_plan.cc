#include "layout/exchange_plan.h"

#include <algorithm>

namespace lockstep::layout {
namespace {

// The pieces of `ranks` consecutive ranks, as each of them has them.
std::vector<SlotRun> pieces_of(const SlotMap& map, int64_t round, int first_rank, int ranks) {
  std::vector<SlotRun> all;
  for (int rank = first_rank; rank < first_rank + ranks; ++rank)
    for (const SlotRun& run : subtrees_of(map.run_of(round, rank, 1))) all.push_back(run);
  return all;
}

int64_t bytes_of(const Leg& leg) {
  return static_cast<int64_t>(leg.runs.size()) * leg.element_bytes();
}

}  // namespace

void Leg::add_member(const std::vector<SlotRun>& shipped) {
  runs.insert(runs.end(), shipped.begin(), shipped.end());
  ends.push_back(runs.size());
}

std::span<const SlotRun> Leg::of(size_t member) const {
  const size_t begin = member == 0 ? 0 : ends[member - 1];
  return std::span(runs).subspan(begin, ends[member] - begin);
}

size_t Leg::pieces() const {
  size_t most = 0;
  for (size_t m = 0; m < members(); ++m) most = std::max(most, of(m).size());
  return most;
}

ExchangePlan ExchangePlan::create(const Strategy& strategy, int64_t round, int rank) {
  const SlotMap& map = strategy.map;
  const int members = strategy.shard_size, groups = strategy.copies();
  ExchangePlan plan;
  plan.slot = map.slot(round, rank);
  plan.round = map.run_of(round, 0, map.world_size);
  plan.native = strategy.reduction == Reduction::kNative;
  if (plan.native) return plan;
  plan.sums_slots = map.block;
  plan.travels = !map.block || round + 1 == map.rounds();
  if (!plan.travels) return plan;
  const int first = rank / members * members;
  for (int m = 0; m < members; ++m) plan.in_group.add_member(pieces_of(map, round, first + m, 1));
  plan.in_group.fp32 = map.block || !strategy.bf16;
  if (groups == 1) return plan;
  Leg as_they_are, summed;
  as_they_are.fp32 = plan.in_group.fp32;
  for (int g = 0; g < groups; ++g) {
    as_they_are.add_member(pieces_of(map, round, g * members, members));
    summed.add_member(subtrees_of(map.run_of(round, g * members, members)));
  }
  plan.sums_in_group = bytes_of(summed) < bytes_of(as_they_are);
  plan.among_groups = std::move(plan.sums_in_group ? summed : as_they_are);
  return plan;
}

}  // namespace lockstep::layout
