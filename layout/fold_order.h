// In which order the sums of slots are added: the balanced binary tree over slot index, as a
// streaming binary counter (docs/ARCHITECTURE.md, rule 4). It knows the runs and holds no numbers:
// core's FoldTree adds what it says, the plan of memory counts what stays open.
//
//   pushes:  {0}    {1}      {2}         {3}
//   open:    {0}    {0,1}    {0,1}{2}    {0..3}
//   push():  0      1        0           2
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
  void clear() { open_.clear(); }

 private:
  void merge_top();
  Reduction reduction_;
  std::vector<SlotRun> open_;  // without a tree: the step's sum, and the round's
  bool in_round_ = false;      // without a tree: the round has pushed
};

}  // namespace lockstep::layout
