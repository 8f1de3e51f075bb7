// Which rank computes which slots of a step, and where it tells of them. Pure arithmetic, for
// the ranks themselves and for the plan of their memory. Groups of consecutive ranks have a
// contiguous run of slots each, and take them in turns.
//
//   V = 7, W = 3, cyclic: one group   block: groups of 1    V = 9, W = 4, group_block, groups of 2
//     round 0:  0 1 2                   rank 0:  0 1          round 0:  0 1   4 5
//     round 1:  3 4 5                   rank 1:  2 3          round 1:  2 3   6 7
//     round 2:  6 . .                   rank 2:  4 5 6        round 2:  . .   8 .
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep::layout {

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
std::vector<SlotRun> subtrees_of(const SlotRun& run);

struct SlotMap {
  int64_t slots = 1;  // V
  int world_size = 1;
  int group = 1;  // ranks of a group; divides W

  int groups() const { return world_size / group; }
  // Every round has slots that follow each other; else the step's alone do.
  bool cyclic() const { return group == world_size; }
  // Every rank has a contiguous run.
  bool block() const { return group == 1 && !cyclic(); }
  // Of the group with the most slots.
  int64_t rounds() const { return (slots + world_size - 1) / world_size; }
  // All slots of the groups [first_group, first_group + count).
  SlotRun run_of_groups(int first_group, int count = 1) const;
  // The slots of one round of ranks of one group, [first_rank, first_rank + ranks).
  SlotRun run_in_round(int64_t round, int first_rank, int ranks) const;
  // The slot that `rank` computes in `round`; none: it is idle.
  std::optional<int64_t> slot(int64_t round, int rank) const;
  int rank_of(int64_t slot) const;
  int64_t round_of(int64_t slot) const;
  std::vector<int64_t> slots_of(int rank) const;
  // That every slot of a step is computed once: what holds for every map.
  void check() const;
  // A rank that computes in the first round: 0, where any of its group does.
  int computing_rank() const { return slot(0, 0) ? 0 : rank_of(slots - 1); }

 private:
  int group_of(int64_t slot) const;
};

inline constexpr int64_t kRankFlags = 6;  // core/sharding/rank_flags.h

// What the ranks tell each other once a step: the losses and the valid tokens of the slots that
// each one computed, by rank, and behind them the flags of all of them together. What a rank tells
// does not grow where slots and ranks grow alike.
struct StepSums {
  SlotMap map;
  int64_t flags = kRankFlags;  // 0: of a validation

  int64_t of_rank() const { return 2 * map.rounds(); }
  int64_t words(int ranks) const { return ranks * of_rank() + flags; }
  // Where a number stands in what ranks tell of which `first` is the first one.
  int64_t loss(int64_t slot, int first) const {
    return (map.rank_of(slot) - first) * of_rank() + map.round_of(slot);
  }
  int64_t valid_tokens(int64_t slot, int first) const { return loss(slot, first) + map.rounds(); }
};

}  // namespace lockstep::layout
