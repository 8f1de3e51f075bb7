#include "layout/slot_map.h"

#include <algorithm>

namespace lockstep::layout {

std::vector<SlotRun> subtrees_of(const SlotRun& run) {
  std::vector<SlotRun> nodes;
  for (int64_t at = run.first; at < run.end();) {
    int64_t count = 1;
    while (at % (2 * count) == 0 && at + 2 * count <= run.end()) count *= 2;
    nodes.push_back({at, count});
    at += count;
  }
  return nodes;
}

SlotRun SlotMap::run_of_groups(int first_group, int count) const {
  const int64_t first = first_group * slots / groups();
  return {first, (first_group + count) * slots / groups() - first};
}

SlotRun SlotMap::run_in_round(int64_t round, int first_rank, int ranks) const {
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
  return list;
}

}  // namespace lockstep::layout
