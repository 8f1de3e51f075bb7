// In which order the sums of slots are added: the balanced binary tree over slot index, as a
// streaming binary counter (docs/ARCHITECTURE.md, rule 4). It knows the runs and holds no numbers:
// core's FoldTree adds what it says, the plan of memory counts what stays open.
//
//   pushes:  {0}    {1}      {2}         {3}
//   open:    {0}    {0,1}    {0,1}{2}    {0..3}
//   push():  0      1        0           2
//
// What arrives together is added by as few kernels as can be (FoldSteps): one adds as many as eight
// parts that are a balanced subtree, and then the open sums that this completes, last first. Each
// number is then read once, and a sum that is added to at once is never written.
//
//   rounds of eight, pushes 0..7, then 8..15: {8 parts, no sum}, {8 parts, 1 sum}
#pragma once

#include <cstdint>
#include <vector>

#include "config/choices.h"
#include "layout/slot_map.h"

namespace lockstep::layout {

class FoldOrder {
 public:
  explicit FoldOrder(Reduction reduction) : reduction_(reduction) {}

  // 0: `run` becomes an open sum of its own. n: it is added to the last open one, and then the last
  // two become one, n - 1 times. Requires: `run` is a node of the tree and begins where the last
  // one ended.
  int push(const SlotRun& run);
  // All slots of a round were pushed: how often the last two become one. 0 with a tree.
  int end_round();
  size_t open() const { return open_.size(); }
  // All slots that were pushed since clear(), each once.
  SlotRun pushed() const {
    return open_.empty() ? SlotRun() : SlotRun{open_.front().first, end() - open_.front().first};
  }
  void clear() {
    open_.clear();
    in_round_ = false;
  }

 private:
  int64_t end() const { return open_.back().end(); }
  void merge_top();
  Reduction reduction_;
  std::vector<SlotRun> open_;  // without a tree: the step's sum, and the round's
  bool in_round_ = false;      // without a tree: the round has pushed
};

inline constexpr int kMostFoldParts = 8, kMostFoldSums = 16;  // of a step of at most 2^16 slots

// What one kernel adds.
struct FoldStep {
  int parts = 0;  // as many of what was pushed, in order: 1, 2, 4 or 8; 0: the last open sum
  int sums = 0;   // then so many open sums, the last one first, whose place it takes; 0: none

  int opened() const { return (parts > 0 ? 1 : 0) - sums; }
  bool operator==(const FoldStep&) const = default;
};

class FoldSteps {
 public:
  explicit FoldSteps(Reduction reduction) : order_(reduction) {}

  // As FoldOrder::push.
  void push(const SlotRun& run) { additions_.push_back(order_.push(run)); }
  // What was pushed since the last call is there: how it is added.
  std::vector<FoldStep> end_round();
  // How the open sums become one. Requires: nothing was pushed since end_round.
  FoldStep finish();
  size_t open() const { return order_.open(); }  // after end_round
  SlotRun pushed() const { return order_.pushed(); }
  // Requires: nothing was pushed since end_round.
  void clear();

 private:
  int balanced_from(size_t first) const;
  FoldOrder order_;
  std::vector<int> additions_;  // by push, since the last end_round
  int64_t added_open_ = 0;      // sums that the steps so far leave open
};

}  // namespace lockstep::layout
