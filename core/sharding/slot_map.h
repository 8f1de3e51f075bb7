// Which rank computes which slots of a step. Pure arithmetic.
//
//   cyclic, V = 7, W = 3           block, V = 7, W = 3
//     round 0:  0 1 2                rank 0:  0 1
//     round 1:  3 4 5                rank 1:  2 3
//     round 2:  6 . .                rank 2:  4 5 6
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep::core {

// Slots [first, first + count).
struct SlotRun {
  int64_t first = 0, count = 0;
  int64_t end() const { return first + count; }
  bool operator==(const SlotRun&) const = default;
};

// May two sums be added in the canonical tree: are they the halves of one of its nodes?
inline bool halves(const SlotRun& a, const SlotRun& b) {
  return a.count == b.count && a.end() == b.first && a.first % (2 * a.count) == 0;
}

// The fewest nodes of the canonical tree that cover `run`, in slot order.
inline std::vector<SlotRun> subtrees_of(const SlotRun& run) {
  std::vector<SlotRun> nodes;
  for (int64_t at = run.first; at < run.end();) {
    int64_t count = 1;
    while (at % (2 * count) == 0 && at + 2 * count <= run.end()) count *= 2;
    nodes.push_back({at, count});
    at += count;
  }
  return nodes;
}

struct SlotMap {
  bool block = false;  // contiguous runs; else cyclic
  int64_t slots = 1;   // V
  int world_size = 1;

  int64_t rounds() const { return (slots + world_size - 1) / world_size; }
  // Under block, all slots of a rank.
  SlotRun run(int rank) const {
    const int64_t first = rank * slots / world_size;
    return {first, (rank + 1) * slots / world_size - first};
  }
  // The slot that `rank` computes in `round`; none: it is idle.
  std::optional<int64_t> slot(int64_t round, int rank) const {
    const int64_t cyclic = round * world_size + rank;
    if (!block) return cyclic < slots ? std::optional(cyclic) : std::nullopt;
    const SlotRun mine = run(rank);
    return round < mine.count ? std::optional(mine.first + round) : std::nullopt;
  }
  int rank_of(int64_t slot) const {
    if (!block) return static_cast<int>(slot % world_size);
    return static_cast<int>(((slot + 1) * world_size - 1) / slots);
  }
  std::vector<int64_t> slots_of(int rank) const {
    std::vector<int64_t> list;
    for (int64_t round = 0; round < rounds(); ++round)
      if (const auto one = slot(round, rank)) list.push_back(*one);
    return list;
  }
  // Slots of the ranks [first_rank, first_rank + ranks): of one round, or under block of the step.
  SlotRun run_of(int64_t round, int first_rank, int ranks) const {
    if (block) {
      const int64_t first = run(first_rank).first;
      return {first, run(first_rank + ranks - 1).end() - first};
    }
    const int64_t from = std::min(slots, round * world_size + first_rank);
    return {from, std::min(slots, round * world_size + first_rank + ranks) - from};
  }
};

}  // namespace lockstep::core
