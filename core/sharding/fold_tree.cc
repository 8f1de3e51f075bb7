#include "core/sharding/fold_tree.h"

#include <ATen/ops/empty.h>

#include "base/check.h"
#include "core/sharding/add_kernels.h"

namespace lockstep::core {
namespace {

void add_into(at::Tensor& sum, const at::Tensor& part) {
  float* to = sum.data_ptr<float>();
  if (part.scalar_type() == at::kFloat) {
    add_floats(to, part.data_ptr<float>(), sum.numel());
  } else {
    add_bf16(to, static_cast<const uint16_t*>(part.data_ptr()), sum.numel());
  }
}

void set_to(at::Tensor& sum, const at::Tensor& part) {
  if (part.scalar_type() == at::kFloat) {
    sum.copy_(part);
  } else {
    widen_bf16(sum.data_ptr<float>(), static_cast<const uint16_t*>(part.data_ptr()), sum.numel());
  }
}

}  // namespace

at::Tensor FoldTree::fresh() {
  if (spare_.empty()) return at::empty({elements_}, at::TensorOptions(at::kFloat));
  at::Tensor t = std::move(spare_.back());
  spare_.pop_back();
  return t;
}

// The first merge of an even push adds the part where it lies: no copy of it is made.
void FoldTree::push(const at::Tensor& part) {
  LOCKSTEP_CHECK(part.numel() == elements_, part.numel(), " ", elements_);
  ++pushes_;
  if (pushes_ % 2 == 1) {
    partials_.push_back(fresh());
    set_to(partials_.back(), part);
    return;
  }
  add_into(partials_.back(), part);
  for (int64_t n = pushes_ / 2; n % 2 == 0; n /= 2) {
    at::Tensor top = std::move(partials_.back());
    partials_.pop_back();
    add_into(partials_.back(), top);
    spare_.push_back(std::move(top));
  }
}

void FoldTree::push_round(const at::Tensor& parts, int64_t part_count) {
  if (reduction_ == Reduction::kTree) {
    for (int64_t i = 0; i < part_count; ++i) push(parts.narrow(0, i * elements_, elements_));
    return;
  }
  at::Tensor round = fresh();
  set_to(round, parts.narrow(0, 0, elements_));
  for (int64_t i = 1; i < part_count; ++i)
    add_into(round, parts.narrow(0, i * elements_, elements_));
  if (partials_.empty()) {
    partials_.push_back(std::move(round));
  } else {
    add_into(partials_.back(), round);
    spare_.push_back(std::move(round));
  }
}

at::Tensor FoldTree::result() {
  LOCKSTEP_CHECK(!partials_.empty(), "no slot was pushed");
  while (partials_.size() > 1) {
    at::Tensor top = std::move(partials_.back());
    partials_.pop_back();
    add_into(partials_.back(), top);
    spare_.push_back(std::move(top));
  }
  at::Tensor sum = partials_.back();
  spare_.push_back(sum);
  partials_.clear();
  pushes_ = 0;
  return sum;
}

}  // namespace lockstep::core
