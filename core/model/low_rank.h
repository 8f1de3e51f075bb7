// What an adapter (layout/lora.h) adds to its matrix's product: scale (x A^T) B^T. Its
// parameters lie in the block's unit of adapters; it knows where and holds nothing else. Nothing is
// kept between forward and backward: x A^T, a small product, is made again.
// Legend: R rows, I and O width of the matrix's input and output, K rank.
#pragma once

#include <ATen/core/Tensor.h>

#include "config/config.h"
#include "core/model/dropout.h"
#include "core/sharding/unit.h"

namespace lockstep::core {

class LowRank {
 public:
  // `a`: which of the adapters' parameters A is; B is the next one. Its output goes to, and its
  // gradient comes from, the columns from `column` on of what the stacked matrices give.
  LowRank(const layout::UnitSpec& adapters, int a, int64_t column, const LoraConfig& lora,
          uint64_t seed);
  // y [R, …] += scale (x A^T) B^T. `slot`, of the dropout of x: null where nothing is dropped.
  void add_forward(const UnitPart& adapters, const at::Tensor& x_RI, const SlotInput* slot,
                   at::Tensor& y) const;
  // Writes the gradients of A and B. Returns that of x A^T [R, K], for input_back.
  at::Tensor parameters_back(const UnitPart& adapters, const at::Tensor& dy, const at::Tensor& x_RI,
                             const SlotInput& slot) const;
  // Adds to dx [R, I].
  void input_back(const UnitPart& adapters, const at::Tensor& dh_RK, const SlotInput& slot,
                  at::Tensor& dx_RI) const;

 private:
  at::Tensor masked(const at::Tensor& x, const SlotInput* slot) const;
  at::Tensor scaled_product(const at::Tensor& x, const at::Tensor& factor) const;

  int a_;
  int64_t column_, outputs_;
  double scale_;
  Dropout dropout_;
};

}  // namespace lockstep::core
