// The kernels of kernels.h on tensors, and matrix products into given memory. Contiguous tensors
// of one compute dtype (fp32 or bf16). Legend: R rows = B*T, D model dim, F feed-forward dim.
#pragma once

#include <ATen/core/Tensor.h>

#include "core/sharding/unit.h"

namespace lockstep::core {

struct RotaryTable {
  at::Tensor cos_TH, sin_TH;  // fp32 [T, head_dim/2]
  static RotaryTable create(int64_t seq_len, int64_t head_dim, double theta);
};

// Returns y; scale_R is fp32 [R], kept for backward.
at::Tensor rms_norm(const at::Tensor& x_RD, const at::Tensor& w_D, double eps, at::Tensor& scale_R);
// Returns dx; adds to dw_sum_D (fp32).
at::Tensor rms_norm_back(const at::Tensor& dy_RD, const at::Tensor& x_RD, const at::Tensor& w_D,
                         const at::Tensor& scale_R, at::Tensor dw_sum_D);
// In place on the first `heads` heads of each row of x.
void rotate_rows(at::Tensor& x, const RotaryTable& table, int64_t seq_len, int64_t heads,
                 int64_t head_dim, float direction);
at::Tensor swiglu(const at::Tensor& gate_up_R2F);
at::Tensor swiglu_back(const at::Tensor& dy_RF, const at::Tensor& gate_up_R2F);

// Consecutive matrices [first, first + count) of a unit as one matrix, their rows stacked: a view
// where they lie back to back, else a copy.
at::Tensor stacked_weight(Unit& unit, int first, int count);
// Their gradient dy^T x, written where the exchange will take it from.
void stacked_weight_grad(Unit& unit, int first, int count, const at::Tensor& dy,
                         const at::Tensor& x);

}  // namespace lockstep::core
