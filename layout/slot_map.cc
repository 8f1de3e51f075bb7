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

SlotRun SlotMap::run(int rank) const {
  const int64_t first = rank * slots / world_size;
  return {first, (rank + 1) * slots / world_size - first};
}

std::optional<int64_t> SlotMap::slot(int64_t round, int rank) const {
  const int64_t cyclic = round * world_size + rank;
  if (!block) return cyclic < slots ? std::optional(cyclic) : std::nullopt;
  const SlotRun mine = run(rank);
  return round < mine.count ? std::optional(mine.first + round) : std::nullopt;
}

int SlotMap::rank_of(int64_t slot) const {
  if (!block) return static_cast<int>(slot % world_size);
  return static_cast<int>(((slot + 1) * world_size - 1) / slots);
}

int64_t SlotMap::round_of(int64_t slot) const {
  return block ? slot - run(rank_of(slot)).first : slot / world_size;
}

std::vector<int64_t> SlotMap::slots_of(int rank) const {
  std::vector<int64_t> list;
  for (int64_t round = 0; round < rounds(); ++round)
    if (const auto one = slot(round, rank)) list.push_back(*one);
  return list;
}

SlotRun SlotMap::run_of(int64_t round, int first_rank, int ranks) const {
  if (block) {
    const int64_t first = run(first_rank).first;
    return {first, run(first_rank + ranks - 1).end() - first};
  }
  const int64_t from = std::min(slots, round * world_size + first_rank);
  return {from, std::min(slots, round * world_size + first_rank + ranks) - from};
}

}  // namespace lockstep::layout
