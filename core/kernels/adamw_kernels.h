// AdamW (Loshchilov & Hutter 2019) on a run of elements, elementwise in correctly rounded
// operations without contraction: the same bits at any cut, on any instruction set and
// any device, so that offload changes nothing. No Torch.
#pragma once

#include "core/kernels/kernel_types.h"

namespace lockstep::core {

struct AdamWStep {
  float lr, beta1, beta2, eps, weight_decay;
  float clip;         // the gradient is multiplied by this first
  float correction1;  // 1 - beta1^t
  float correction2;  // sqrt(1 - beta2^t)
  // t counts from 1. Computed in fp64, rounded once.
  static AdamWStep create(double lr, double beta1, double beta2, double eps, double weight_decay,
                          double clip, int64_t t);
};

// master, m, v [n] are updated in place from grad [n].
template <typename Place>
void adamw_update(const AdamWStep& step, bool decay, const float* grad, float* master, float* m,
                  float* v, int64_t n);

// grad *= scale; then sums_out[i] = fp64 sum of squares of tile i (4096 elements each), 8 lanes in
// a fixed order.
template <typename Place>
void scale_and_square_tiles(float* grad, float scale, int64_t tiles, double* sums_out);

}  // namespace lockstep::core
