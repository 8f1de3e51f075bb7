#include "core/model/low_rank.h"

#include <ATen/ops/empty_like.h>

#include "core/kernels/matmul.h"

namespace lockstep::core {

LowRank::LowRank(const layout::UnitSpec& adapters, int a, int64_t column, const LoraConfig& lora,
                 uint64_t seed)
    : a_(a),
      column_(column),
      outputs_(adapters.params[static_cast<size_t>(a) + 1].shape[0]),
      scale_(lora.alpha / static_cast<double>(lora.rank)),
      dropout_(lora.dropout, seed, adapters.params[static_cast<size_t>(a)].name) {}

at::Tensor LowRank::masked(const at::Tensor& x, const SlotInput* slot) const {
  if (slot == nullptr || !dropout_.active()) return x;
  at::Tensor copy = at::empty_like(x).copy_(x);
  dropout_.apply(copy, *slot);
  return copy;
}

// The scale meets the smallest tensor there is, [R, K].
at::Tensor LowRank::scaled_product(const at::Tensor& x, const at::Tensor& factor) const {
  return product(x, factor).mul_(scale_);
}

void LowRank::add_forward(const UnitPart& adapters, const at::Tensor& x_RI, const SlotInput* slot,
                          at::Tensor& y) const {
  const at::Tensor h_RK = scaled_product(masked(x_RI, slot), adapters.weight(a_).t());
  y.narrow(1, column_, outputs_).add_(product(h_RK, adapters.weight(a_ + 1).t()));
}

at::Tensor LowRank::parameters_back(const UnitPart& adapters, const at::Tensor& dy,
                                    const at::Tensor& x_RI, const SlotInput& slot) const {
  const at::Tensor d_RO = dy.narrow(1, column_, outputs_).contiguous();
  const at::Tensor x = masked(x_RI, &slot);
  const at::Tensor h_RK = scaled_product(x, adapters.weight(a_).t());
  at::Tensor out = adapters.grad(a_ + 1);
  multiply(d_RO.t(), h_RK, out);
  at::Tensor dh_RK = scaled_product(d_RO, adapters.weight(a_ + 1));
  out = adapters.grad(a_);
  multiply(dh_RK.t(), x, out);
  return dh_RK;
}

void LowRank::input_back(const UnitPart& adapters, const at::Tensor& dh_RK, const SlotInput& slot,
                         at::Tensor& dx_RI) const {
  at::Tensor d = product(dh_RK, adapters.weight(a_));
  dropout_.apply(d, slot);
  dx_RI.add_(d);
}

}  // namespace lockstep::core
