#include "core/model/layers.h"

#include <ATen/ops/cat.h>

#include "base/check.h"
#include "core/kernels/kernel_table.h"
#include "core/kernels/matmul.h"
#include "core/model/stacked_weight.h"

namespace lockstep::core {
Linear::Linear(const layout::UnitSpec& unit, layout::Role first, int count, layout::Role bias,
               bool in_out)
    : first_(unit.find(first)), count_(count), bias_(unit.find(bias)), in_out_(in_out) {
  LOCKSTEP_CHECK(first_ >= 0 && (!in_out || count == 1), unit.name, " ", first_, " ", count);
}

void Linear::adapt(const layout::UnitSpec& unit, const layout::UnitSpec& adapters,
                   const LoraConfig& lora, uint64_t seed) {
  int64_t column = 0;
  for (int i = first_; i < first_ + count_; ++i) {
    const layout::ParamSpec& matrix = unit.params[static_cast<size_t>(i)];
    const int a = adapters.find(matrix.role);
    if (a >= 0) adapters_.emplace_back(adapters, a, column, lora, seed);
    column += matrix.shape[in_out_ ? 1 : 0];
  }
}

at::Tensor Linear::forward(UnitParts units, const at::Tensor& x, const SlotInput* slot) const {
  const UnitPart& unit = units[0];
  at::Tensor y = in_out_ ? product(x, unit.weight(first_))
                         : product(x, stacked_weight(unit, first_, count_).t());
  for (const LowRank& adapter : adapters_) adapter.add_forward(units[1], x, slot, y);
  if (bias_ < 0) return y;
  if (count_ == 1) return y.add_(unit.weight(bias_));
  std::vector<at::Tensor> parts;
  for (int i = bias_; i < bias_ + count_; ++i) parts.push_back(unit.weight(i));
  return y.add_(at::cat(parts, 0));
}

at::Tensor Linear::backward(UnitParts units, const at::Tensor& dy, at::Tensor x,
                            const SlotInput& slot) const {
  std::vector<at::Tensor> inner;
  for (const LowRank& adapter : adapters_)
    inner.push_back(adapter.parameters_back(units[1], dy, x, slot));
  if (!units[0].spec().frozen) parameters_back(units[0], dy, x);
  x.reset();
  at::Tensor dx = input_back(units[0], dy);
  for (size_t i = 0; i < inner.size(); ++i) adapters_[i].input_back(units[1], inner[i], slot, dx);
  return dx;
}

void Linear::parameters_back(const UnitPart& unit, const at::Tensor& dy,
                             const at::Tensor& x) const {
  if (in_out_) {
    at::Tensor out = unit.grad(first_);
    multiply(x.t(), dy, out);
  } else {
    stacked_weight_grad(unit, first_, count_, dy, x);
  }
  if (bias_ < 0) return;
  int64_t column = 0;
  for (int i = bias_; i < bias_ + count_; ++i) {
    const at::Tensor sum = unit.grad_sum(i);
    kernels_on(dy).add_columns(sum, dy, column);
    column += sum.numel();
  }
}

at::Tensor Linear::input_back(const UnitPart& unit, const at::Tensor& dy) const {
  return in_out_ ? product(dy, unit.weight(first_).t())
                 : product(dy, stacked_weight(unit, first_, count_));
}

Norm::Norm(const layout::DecoderShape& shape, const layout::UnitSpec& unit, layout::Role weight,
           layout::Role bias)
    : weight_(unit.find(weight)),
      bias_(unit.find(bias)),
      eps_(shape.norm_eps),
      offset_(shape.norm_offset()) {
  LOCKSTEP_CHECK(weight_ >= 0, unit.name);
}

at::Tensor Norm::forward(const UnitPart& unit, const at::Tensor& x, const at::Tensor& residual,
                         at::Tensor& kept) const {
  const at::Tensor& w = unit.weight(weight_);
  const Kernels& kernels = kernels_on(x);
  if (bias_ < 0) return kernels.add_rms_norm_(x, residual, w, eps_, kept, offset_);
  return kernels.add_layer_norm_(x, residual, w, unit.weight(bias_), eps_, kept);
}

at::Tensor Norm::backward(const UnitPart& unit, at::Tensor dy, const at::Tensor& x,
                          const at::Tensor& kept, const at::Tensor& residual) const {
  const at::Tensor& w = unit.weight(weight_);
  const at::Tensor dw_sum = unit.grad_sum(weight_);
  const Kernels& kernels = kernels_on(x);
  if (bias_ < 0) return kernels.rms_norm_back(std::move(dy), x, w, kept, residual, dw_sum, offset_);
  return kernels.layer_norm_back(std::move(dy), x, w, kept, residual, dw_sum, unit.grad_sum(bias_));
}

}  // namespace lockstep::core
