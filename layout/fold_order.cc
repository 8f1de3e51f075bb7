#include "layout/fold_order.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace lockstep::layout {

void FoldOrder::merge_top() {
  LOCKSTEP_CHECK(open_.size() > 1 && open_[open_.size() - 2].end() == open_.back().first,
                 open_.size(), " sums are open, the last one from slot ", open_.back().first);
  const int64_t count = open_.back().count;
  open_.pop_back();
  open_.back().count += count;
}

int FoldOrder::push(const SlotRun& run) {
  LOCKSTEP_CHECK(open_.empty() || open_.back().end() == run.first, "slot ", run.first,
                 " is pushed after slots up to ", open_.empty() ? 0 : open_.back().end());
  const bool tree = reduction_ == Reduction::kTree;
  const bool node = run.count > 0 && std::has_single_bit(static_cast<uint64_t>(run.count)) &&
                    run.first % run.count == 0;
  LOCKSTEP_CHECK(run.first >= 0 && run.count > 0 && (node || !tree), "slots ", run.first, " to ",
                 run.end(), " are no node of the tree");
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

// The most parts from `first` on that are a subtree.
int FoldSteps::balanced_from(size_t first) const {
  int parts = 1;
  for (int n = 1; n <= kMostFoldParts && first + static_cast<size_t>(n) <= additions_.size(); ++n) {
    const int additions = additions_[first + static_cast<size_t>(n) - 1];
    const int completes = std::countr_zero(static_cast<unsigned>(n));
    if (std::has_single_bit(static_cast<unsigned>(n)) && additions >= completes) parts = n;
    if (additions != completes) break;
  }
  return parts;
}

std::vector<FoldStep> FoldSteps::end_round() {
  std::vector<FoldStep> steps;
  for (size_t next = 0; next < additions_.size();) {
    const int parts = balanced_from(next);
    next += static_cast<size_t>(parts);
    steps.push_back({parts, additions_[next - 1] - std::countr_zero(static_cast<unsigned>(parts))});
  }
  const auto parts = std::accumulate(steps.begin(), steps.end(), int64_t{0},
                                     [](int64_t n, const FoldStep& s) { return n + s.parts; });
  LOCKSTEP_CHECK(parts == std::ssize(additions_), parts, " parts are added, of ",
                 additions_.size());
  additions_.clear();
  if (const int left = order_.end_round(); left > 0) steps.push_back({0, left});
  for (const FoldStep& step : steps) {
    LOCKSTEP_CHECK(step.parts <= kMostFoldParts && step.sums <= kMostFoldSums &&
                       step.sums <= added_open_ + (step.parts > 0 ? 0 : -1),
                   step.parts, " parts are added to ", step.sums, " sums of ", added_open_);
    added_open_ += step.opened();
  }
  LOCKSTEP_CHECK(added_open_ == static_cast<int64_t>(order_.open()), added_open_,
                 " sums are open, and the tree has ", order_.open());
  return steps;
}

FoldStep FoldSteps::finish() {
  LOCKSTEP_CHECK(additions_.empty(), additions_.size(), " parts were not added");
  const FoldStep last{0, std::max(0, static_cast<int>(open()) - 1)};  // a frozen unit has none
  LOCKSTEP_CHECK(last.sums <= kMostFoldSums, last.sums, " sums at once");
  clear();
  return last;
}

void FoldSteps::clear() {
  LOCKSTEP_CHECK(additions_.empty(), additions_.size(), " parts were not added");
  order_.clear();
  added_open_ = 0;
}

}  // namespace lockstep::layout
