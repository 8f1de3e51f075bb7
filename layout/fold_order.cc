#include "layout/fold_order.h"

#include <utility>

#include "base/check.h"

namespace lockstep::layout {

void FoldOrder::merge_top() {
  const int64_t count = open_.back().count;
  open_.pop_back();
  open_.back().count += count;
}

int FoldOrder::push(const SlotRun& run) {
  LOCKSTEP_CHECK(open_.empty() || open_.back().end() == run.first, "slot ", run.first);
  const bool tree = reduction_ == Reduction::kTree;
  const bool joins =
      tree ? !open_.empty() && halves(open_.back(), run) : std::exchange(in_round_, true);
  if (!joins) {
    open_.push_back(run);
    return 0;
  }
  open_.back().count += run.count;
  int additions = 1;
  for (; tree && open_.size() > 1 && halves(open_[open_.size() - 2], open_.back()); ++additions)
    merge_top();
  return additions;
}

int FoldOrder::end_round() {
  if (reduction_ == Reduction::kTree) return 0;
  in_round_ = false;
  if (open_.size() < 2) return 0;
  merge_top();
  return 1;
}

}  // namespace lockstep::layout
