// The kernels of kernels.h on contiguous tensors of one compute dtype (fp32 or bf16), spread over
// the intra-op threads; bits do not depend on how many those are. Legend: R rows = B*T, D model
// dim, F feed-forward dim.
#pragma once

#include <ATen/core/Tensor.h>

#include "core/kernels/kernels.h"
#include "layout/model_spec.h"

namespace lockstep::core {

struct RotaryTable {
  at::Tensor cos_TH, sin_TH;  // fp32 [T, head_dim/2]
  static RotaryTable create(int64_t seq_len, int64_t head_dim, double theta,
                            const layout::RopeScaling& scaling = {});
};

// Returns y; scale_R is fp32 [R], kept for backward.
at::Tensor rms_norm(const at::Tensor& x_RD, const at::Tensor& w_D, double eps, at::Tensor& scale_R);
// Returns residual (undefined: none) + dx, in dy's memory; adds to dw_sum_D (fp32).
at::Tensor rms_norm_back(at::Tensor dy_RD, const at::Tensor& x_RD, const at::Tensor& w_D,
                         const at::Tensor& scale_R, const at::Tensor& residual_RD,
                         at::Tensor dw_sum_D);
// RMSNorm over each head of head_dim: columns [first_column, + heads * head_dim) of x into the same
// ones of y; scale_RH is fp32 [R, heads].
void head_norm(const at::Tensor& x, const at::Tensor& w, at::Tensor& y, at::Tensor& scale_RH,
               int64_t first_column, int64_t heads, double eps);
// dy's columns become their gradient.
void head_norm_back(at::Tensor& dy, const at::Tensor& x, const at::Tensor& w,
                    const at::Tensor& scale_RH, at::Tensor dw_sum, int64_t first_column,
                    int64_t heads);
// Returns y; stats_R2 is fp32 [R, 2], kept for backward.
at::Tensor layer_norm(const at::Tensor& x_RD, const at::Tensor& w_D, const at::Tensor& b_D,
                      double eps, at::Tensor& stats_R2);
// As rms_norm_back; adds to dw_sum_D and db_sum_D (fp32).
at::Tensor layer_norm_back(at::Tensor dy_RD, const at::Tensor& x_RD, const at::Tensor& w_D,
                           const at::Tensor& stats_R2, const at::Tensor& residual_RD,
                           at::Tensor dw_sum_D, at::Tensor db_sum_D);
// In place on the first `heads` heads of each row of x, which is at its place of positions_R.
void rotate_rows(at::Tensor& x, const RotaryTable& table, const at::Tensor& positions_R,
                 int64_t heads, int64_t head_dim, float direction);
at::Tensor swiglu(const at::Tensor& gate_up_R2F);
// Returns the gradient, in gate_up's memory.
at::Tensor swiglu_back(const at::Tensor& dy_RF, at::Tensor gate_up_R2F);
at::Tensor gelu_new(const at::Tensor& x);
// Returns the gradient, in x's memory.
at::Tensor gelu_new_back(const at::Tensor& dy, at::Tensor x);
// masked_softmax and its gradient on stacks of blocks [N, rows, keys].
void softmax_of_seen(at::Tensor& scores, const ScoreBlock& block, float scale);
void softmax_of_seen_back(const at::Tensor& p, at::Tensor& dp, const ScoreBlock& block,
                          float scale);
// sum_C += the column sums of dy [R, first_column + C, …], row after row in fp32.
void add_columns(at::Tensor sum_C, const at::Tensor& dy, int64_t first_column);

}  // namespace lockstep::core
