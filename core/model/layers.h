// Layers whose parameters lie in a unit: linear and norm, forward and backward. They know where
// their parameters are and hold nothing else. Legend: R rows, D model dim.
#pragma once

#include <ATen/core/Tensor.h>

#include "core/model/low_rank.h"
#include "core/sharding/unit.h"
#include "layout/model_spec.h"

namespace lockstep::core {

// y = x W^T + b, with W stacked from `count` consecutive matrices of the unit (rows below rows),
// and b from as many consecutive biases. With in_out it is one matrix [in, out]: y = x W + b.
// `units`: the one with W, and where there are adapters the one with these.
class Linear {
 public:
  // The matrices from role `first` on; `bias` may be in no parameter.
  Linear(const layout::UnitSpec& unit, layout::Role first, int count, layout::Role bias,
         bool in_out);
  // Each of its matrices that `adapters` has an adapter for adds that one's output to its own.
  void adapt(const layout::UnitSpec& unit, const layout::UnitSpec& adapters, const LoraConfig& lora,
             uint64_t seed);
  // `slot`, of adapters' dropout: null where nothing is dropped.
  at::Tensor forward(UnitParts units, const at::Tensor& x, const SlotInput* slot) const;
  // Returns dx. Writes the gradients of what is trained: of W, where the exchange will take it
  // from, of b, summed in fp32, of adapters. Lets go of x before dx is made.
  at::Tensor backward(UnitParts units, const at::Tensor& dy, at::Tensor x,
                      const SlotInput& slot) const;

 private:
  void parameters_back(const UnitPart& unit, const at::Tensor& dy, const at::Tensor& x) const;
  at::Tensor input_back(const UnitPart& unit, const at::Tensor& dy) const;

  int first_, count_, bias_;  // bias_ -1: none
  bool in_out_;
  std::vector<LowRank> adapters_;
};

// RMSNorm, or LayerNorm where the unit has a bias for it, as `shape` says.
class Norm {
 public:
  Norm(const layout::DecoderShape& shape, const layout::UnitSpec& unit, layout::Role weight,
       layout::Role bias);
  // x += residual (undefined: none), rounded, and the norm of that x; `kept` is for backward.
  at::Tensor forward(const UnitPart& unit, const at::Tensor& x_RD, const at::Tensor& residual_RD,
                     at::Tensor& kept) const;
  // Returns residual (undefined: none) + dx, in dy's memory; adds to the parameters' gradients in
  // fp32.
  at::Tensor backward(const UnitPart& unit, at::Tensor dy_RD, const at::Tensor& x_RD,
                      const at::Tensor& kept, const at::Tensor& residual_RD) const;

 private:
  int weight_, bias_;
  double eps_;
  float offset_;  // of RMSNorm's weight
};

}  // namespace lockstep::core
