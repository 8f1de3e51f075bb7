#include "core/sharding/fold_tree.h"

#include <utility>

#include "base/check.h"
#include "core/kernels/kernel_table.h"

namespace lockstep::core {

void FoldTree::push(const at::Tensor& part, const SlotRun& run) {
  LOCKSTEP_CHECK(part.numel() == elements_, part.numel(), " ", elements_);
  LOCKSTEP_CHECK(parts_.empty() || parts_.back().scalar_type() == part.scalar_type(), "slot ",
                 run.first, " is of ", c10::toString(part.scalar_type()), ", the one before of ",
                 c10::toString(parts_.back().scalar_type()));
  steps_.push(run);
  parts_.push_back(part);
}

void FoldTree::end_round() {
  std::span<const at::Tensor> left = parts_;
  for (const layout::FoldStep& step : steps_.end_round()) {
    const auto parts = static_cast<size_t>(step.parts);
    add(left.first(parts), step.sums);
    left = left.subspan(parts);
  }
  LOCKSTEP_CHECK(left.empty() && open_.size() == steps_.open(), left.size(), " parts are left, ",
                 open_.size(), " sums are open and not ", steps_.open());
  parts_.clear();
}

// No parts: the last open sum. The last `sums` open ones become one, in place.
void FoldTree::add(std::span<const at::Tensor> parts, int sums) {
  at::Tensor top;
  if (parts.empty()) {
    if (sums == 0) return;
    top = std::move(open_.back());
    open_.pop_back();
    parts = {&top, 1};
  }
  if (sums == 0) {
    open_.push_back(sums_.take_tensor(elements_, at::kFloat));
    return kernels_on(parts.front()).fold(open_.back(), parts, {});
  }
  LOCKSTEP_CHECK(sums > 0 && static_cast<size_t>(sums) <= open_.size(), sums, " sums of ",
                 open_.size());
  const std::span to = std::span(open_).last(static_cast<size_t>(sums));
  kernels_on(to.front()).fold(to.front(), parts, to);
  sums_.give_tensor(top);
  for (; sums > 1; --sums) {
    sums_.give_tensor(open_.back());
    open_.pop_back();
  }
}

at::Tensor FoldTree::result() {
  LOCKSTEP_CHECK(!open_.empty(), "no slot was pushed");
  add({}, steps_.finish().sums);
  LOCKSTEP_CHECK(open_.size() == 1, open_.size(), " sums are left of a step");
  return std::move(take_partials().front());
}

std::vector<at::Tensor> FoldTree::take_partials() {
  LOCKSTEP_CHECK(parts_.empty(), parts_.size(), " parts were not added");
  steps_.clear();
  return std::exchange(open_, {});
}

void FoldTree::give_back(std::vector<at::Tensor> tensors) {
  for (at::Tensor& t : tensors) {
    LOCKSTEP_CHECK(!t.defined() || t.numel() == elements_, t.numel(), " elements of ", elements_);
    sums_.give_tensor(t);
  }
}

}  // namespace lockstep::core
