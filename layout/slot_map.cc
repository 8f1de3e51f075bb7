#include "layout/slot_map.h"
#include "base/check.h"

#include <algorithm>
#include <functional>

namespace lockstep::layout {

std::vector<SlotRun> subtrees_of(const SlotRun& run) {
  std::vector<SlotRun> nodes;
  for (int64_t at = run.first; at < run.end();) {
    int64_t count = 1;
    while (at % (2 * count) == 0 && at + 2 * count <= run.end()) count *= 2;
    nodes.push_back({at, count});
    at += count;
  }
  LOCKSTEP_CHECK(
      nodes.empty() || (nodes.front().first == run.first && nodes.back().end() == run.end()),
      nodes.size(), " nodes for slots ", run.first, " to ", run.end());
  return nodes;
}

SlotRun SlotMap::run_of_groups(int first_group, int count) const {
  LOCKSTEP_CHECK(first_group >= 0 && count >= 0 && first_group + count <= groups(), count,
                 " groups from ", first_group, " of ", groups());
  const int64_t first = first_group * slots / groups();
  return {first, (first_group + count) * slots / groups() - first};
}

SlotRun SlotMap::run_in_round(int64_t round, int first_rank, int ranks) const {
  LOCKSTEP_CHECK(round >= 0 && ranks >= 1 && first_rank % group + ranks <= group, ranks,
                 " ranks from ", first_rank, " in groups of ", group, ", round ", round);
  const SlotRun all = run_of_groups(first_rank / group);
  const int64_t from = all.first + round * group + first_rank % group;
  const int64_t first = std::min(all.end(), from);
  return {first, std::min(all.end(), from + ranks) - first};
}

std::optional<int64_t> SlotMap::slot(int64_t round, int rank) const {
  const SlotRun own = run_in_round(round, rank, 1);
  return own.count > 0 ? std::optional(own.first) : std::nullopt;
}

int SlotMap::group_of(int64_t slot) const {
  LOCKSTEP_CHECK(slot >= 0 && slot < slots, "slot ", slot, " of ", slots);
  return static_cast<int>(((slot + 1) * groups() - 1) / slots);
}

int SlotMap::rank_of(int64_t slot) const {
  const int g = group_of(slot);
  return g * group + static_cast<int>((slot - run_of_groups(g).first) % group);
}

int64_t SlotMap::round_of(int64_t slot) const {
  return (slot - run_of_groups(group_of(slot)).first) / group;
}

std::vector<int64_t> SlotMap::slots_of(int rank) const {
  std::vector<int64_t> list;
  for (int64_t round = 0; round < rounds(); ++round)
    if (const auto one = slot(round, rank)) list.push_back(*one);
  LOCKSTEP_CHECK(std::is_sorted(list.begin(), list.end(), std::less_equal<>()), "rank ", rank,
                 " has ", list.size(), " slots, not in order");
  return list;
}

void SlotMap::check() const {
  LOCKSTEP_CHECK(slots >= 1 && world_size >= 1 && group >= 1 && world_size % group == 0, slots,
                 " slots on ", world_size, " ranks in groups of ", group);
  for (int64_t s = 0; s < slots; ++s)
    LOCKSTEP_CHECK(round_of(s) < rounds() && slot(round_of(s), rank_of(s)) == s, "slot ", s,
                   " is not computed by rank ", rank_of(s), " in round ", round_of(s));
  int64_t computed = 0;
  for (int64_t round = 0; round < rounds(); ++round)
    for (int g = 0; g < groups(); ++g) computed += run_in_round(round, g * group, group).count;
  LOCKSTEP_CHECK(computed == slots, computed, " slots are computed, of ", slots);
}

}  // namespace lockstep::layout
