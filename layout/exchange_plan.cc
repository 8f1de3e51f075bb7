#include "layout/exchange_plan.h"
#include "base/check.h"

#include <algorithm>

namespace lockstep::layout {
namespace {

// What `rank` ships in a round, or under the block map in a step.
SlotRun own_run(const SlotMap& map, int64_t round, int rank) {
  return map.block() ? map.run_of_groups(rank) : map.run_in_round(round, rank, 1);
}

// The slots of group g of G ranks: of the round, or of the step where a rank or a group has a
// contiguous run.
SlotRun group_run(const SlotMap& map, int64_t round, int g, int size) {
  if (map.cyclic()) return map.run_in_round(round, g * size, size);
  return map.run_of_groups(g * size / map.group, size / map.group);
}

// What all members ship together is `whole`, each slot once and in order.
void check_covers(const Leg& leg, const SlotRun& whole) {
  int64_t at = whole.first;
  for (const SlotRun& run : leg.runs) {
    LOCKSTEP_CHECK(run.first == at, "slot ", at, " is followed by slot ", run.first);
    at = run.end();
  }
  LOCKSTEP_CHECK(at == whole.end() && (leg.ends.empty() || leg.ends.back() == leg.runs.size()),
                 "slots to ", at, " are shipped, of ", whole.first, " to ", whole.end());
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
  LOCKSTEP_CHECK(member < members(), "member ", member, " of ", members());
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
  const int members = strategy.sizes.group, groups = map.world_size / members;
  LOCKSTEP_CHECK(round >= 0 && round < map.rounds() && rank >= 0 && rank < map.world_size, "round ",
                 round, " of ", map.rounds(), ", rank ", rank, " of ", map.world_size);
  LOCKSTEP_CHECK(members * groups == map.world_size, map.world_size, " ranks in groups of ",
                 members);
  const bool last = round + 1 == map.rounds();
  ExchangePlan plan;
  plan.slot = map.slot(round, rank);
  plan.round = map.cyclic() ? map.run_in_round(round, 0, map.world_size) : SlotRun{0, map.slots};
  plan.native = strategy.reduction == Reduction::kNative;
  if (plan.native) return plan;
  plan.sums_slots = map.block();
  plan.travels = !plan.sums_slots || last;
  if (!plan.travels) return plan;
  const int first = rank / members * members;
  plan.in_group.fp32 = plan.sums_slots || !strategy.bf16;
  for (int m = 0; m < members; ++m)
    plan.in_group.add_member(subtrees_of(own_run(map, round, first + m)));
  if (groups == 1) {
    check_covers(plan.in_group, plan.round);
    return plan;
  }
  const bool over_rounds = !map.cyclic() && !plan.sums_slots;
  plan.crosses = !over_rounds || last;
  plan.sums_in_group = over_rounds;
  if (!plan.crosses) return plan;
  Leg as_they_are, summed;
  as_they_are.fp32 = plan.in_group.fp32;
  for (int g = 0; g < groups; ++g) {
    std::vector<SlotRun> pieces;
    for (int r = g * members; r < (g + 1) * members; ++r)
      for (const SlotRun& run : subtrees_of(own_run(map, round, r))) pieces.push_back(run);
    as_they_are.add_member(pieces);
    summed.add_member(subtrees_of(group_run(map, round, g, members)));
  }
  plan.sums_in_group |= bytes_of(summed) < bytes_of(as_they_are);
  plan.among_groups = std::move(plan.sums_in_group ? summed : as_they_are);
  check_covers(plan.among_groups, plan.round);
  return plan;
}

}  // namespace lockstep::layout
