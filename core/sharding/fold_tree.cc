#include "core/sharding/fold_tree.h"

#include <ATen/ops/empty.h>

#include <utility>

#include "base/check.h"
#include "core/device/runtime.h"
#include "core/kernels/add_kernels.h"

namespace lockstep::core {
namespace {

void add_into(at::Tensor& sum, const at::Tensor& part) {
  float* to = sum.data_ptr<float>();
  if constexpr (cuda::kBuilt) {
    if (sum.is_cuda() && part.scalar_type() == at::kFloat)
      return cuda::add_floats(to, part.data_ptr<float>(), sum.numel());
    if (sum.is_cuda())
      return cuda::add_bf16(to, static_cast<const uint16_t*>(part.data_ptr()), sum.numel());
  }
  if (part.scalar_type() == at::kFloat) {
    add_floats(to, part.data_ptr<float>(), sum.numel());
  } else {
    add_bf16(to, static_cast<const uint16_t*>(part.data_ptr()), sum.numel());
  }
}

void set_to(at::Tensor& sum, const at::Tensor& part) {
  if (part.scalar_type() == at::kFloat || sum.is_cuda()) {
    sum.copy_(part);
  } else {
    widen_bf16(sum.data_ptr<float>(), static_cast<const uint16_t*>(part.data_ptr()), sum.numel());
  }
}

}  // namespace

at::Tensor FoldTree::fresh(at::Device device) {
  if (spare_.empty()) return at::empty({elements_}, at::TensorOptions(at::kFloat).device(device));
  at::Tensor t = std::move(spare_.back());
  spare_.pop_back();
  return t;
}

void FoldTree::merge_top() {
  at::Tensor top = std::move(open_.back());
  open_.pop_back();
  add_into(open_.back(), top);
  spare_.push_back(std::move(top));
}

// Where the part completes a node it is added where it lies: no copy of it is made.
void FoldTree::push(const at::Tensor& part, const SlotRun& run) {
  LOCKSTEP_CHECK(part.numel() == elements_, part.numel(), " ", elements_);
  const int additions = order_.push(run);
  if (additions == 0) {
    open_.push_back(fresh(part.device()));
    return set_to(open_.back(), part);
  }
  add_into(open_.back(), part);
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
