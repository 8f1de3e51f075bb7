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

void FoldTree::push_copy(const at::Tensor& part, const SlotRun& run) {
  partials_.push_back({fresh(part.device()), run});
  set_to(partials_.back().sum, part);
}

void FoldTree::merge_top() {
  Partial top = std::move(partials_.back());
  partials_.pop_back();
  add_into(partials_.back().sum, top.sum);
  partials_.back().run.count += top.run.count;
  spare_.push_back(std::move(top.sum));
}

// Where the part completes a node it is added where it lies: no copy of it is made.
void FoldTree::push(const at::Tensor& part, const SlotRun& run) {
  LOCKSTEP_CHECK(part.numel() == elements_, part.numel(), " ", elements_);
  LOCKSTEP_CHECK(partials_.empty() || partials_.back().run.end() == run.first, "slot ", run.first);
  if (reduction_ != Reduction::kTree) {
    if (!std::exchange(in_round_, true)) return push_copy(part, run);
    add_into(partials_.back().sum, part);
    partials_.back().run.count += run.count;
    return;
  }
  if (partials_.empty() || !halves(partials_.back().run, run)) return push_copy(part, run);
  add_into(partials_.back().sum, part);
  partials_.back().run.count += run.count;
  while (partials_.size() > 1 && halves(partials_[partials_.size() - 2].run, partials_.back().run))
    merge_top();
}

void FoldTree::end_round() {
  if (reduction_ == Reduction::kTree) return;
  in_round_ = false;
  if (partials_.size() > 1) merge_top();
}

at::Tensor FoldTree::result() {
  LOCKSTEP_CHECK(!partials_.empty(), "no slot was pushed");
  while (partials_.size() > 1) merge_top();
  at::Tensor sum = std::move(partials_.back().sum);
  spare_.push_back(sum);
  partials_.clear();
  return sum;
}

std::vector<at::Tensor> FoldTree::take_partials() {
  std::vector<at::Tensor> sums;
  for (Partial& partial : partials_) sums.push_back(std::move(partial.sum));
  partials_.clear();
  return sums;
}

void FoldTree::give_back(std::vector<at::Tensor> tensors) {
  for (at::Tensor& t : tensors) spare_.push_back(std::move(t));
}

}  // namespace lockstep::core
