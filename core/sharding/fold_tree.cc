#include "core/sharding/fold_tree.h"

#include <utility>

#include "base/check.h"
#include "core/kernels/kernel_table.h"

namespace lockstep::core {

void FoldTree::merge_top() {
  at::Tensor top = std::move(open_.back());
  open_.pop_back();
  kernels_on(top).add_to(open_.back(), top);
  sums_.give_tensor(top);
}

// Where the part completes a node it is added where it lies: no copy of it is made.
void FoldTree::push(const at::Tensor& part, const SlotRun& run) {
  LOCKSTEP_CHECK(part.numel() == elements_, part.numel(), " ", elements_);
  const int additions = order_.push(run);
  if (additions == 0) {
    open_.push_back(sums_.take_tensor(elements_, at::kFloat));
    return kernels_on(part).set_to(open_.back(), part);
  }
  kernels_on(part).add_to(open_.back(), part);
  for (int i = 1; i < additions; ++i) merge_top();
}

void FoldTree::end_round() {
  for (int left = order_.end_round(); left > 0; --left) merge_top();
}

at::Tensor FoldTree::result() {
  LOCKSTEP_CHECK(!open_.empty(), "no slot was pushed");
  while (open_.size() > 1) merge_top();
  return std::move(take_partials().front());
}

std::vector<at::Tensor> FoldTree::take_partials() {
  order_.clear();
  return std::exchange(open_, {});
}

void FoldTree::give_back(std::vector<at::Tensor> tensors) {
  for (at::Tensor& t : tensors) sums_.give_tensor(t);
}

}  // namespace lockstep::core
