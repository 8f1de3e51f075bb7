#include "core/sharding/fold_tree.h"

#include <ATen/ops/empty.h>

#include <utility>

#include "base/check.h"
#include "core/kernels/kernel_table.h"

namespace lockstep::core {

at::Tensor FoldTree::fresh(at::Device device) {
  if (spare_.empty()) return at::empty({elements_}, at::TensorOptions(at::kFloat).device(device));
  at::Tensor t = std::move(spare_.back());
  spare_.pop_back();
  return t;
}

void FoldTree::merge_top() {
  at::Tensor top = std::move(open_.back());
  open_.pop_back();
  kernels_on(top).add_to(open_.back(), top);
  spare_.push_back(std::move(top));
}

// Where the part completes a node it is added where it lies: no copy of it is made.
void FoldTree::push(const at::Tensor& part, const SlotRun& run) {
  LOCKSTEP_CHECK(part.numel() == elements_, part.numel(), " ", elements_);
  const int additions = order_.push(run);
  if (additions == 0) {
    open_.push_back(fresh(part.device()));
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
  spare_.push_back(take_partials().front());
  return spare_.back();
}

std::vector<at::Tensor> FoldTree::take_partials() {
  order_.clear();
  return std::exchange(open_, {});
}

void FoldTree::give_back(std::vector<at::Tensor> tensors) {
  for (at::Tensor& t : tensors) spare_.push_back(std::move(t));
}

}  // namespace lockstep::core
