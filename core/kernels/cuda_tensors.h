// cuda_kernels.h on tensors that lie on a CUDA device, and attention there. Contiguous, of one
// compute dtype (fp32 or bf16) where nothing else is said. tensor_kernels.cc and the stages come
// here with what lies on a device. Legend: B sequences, T tokens, R = B*T rows, D model dim, H
// query heads, K key heads, E head_dim, V vocabulary.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "core/kernels/documents.h"

namespace lockstep::core::cuda {

// Return y; the last argument is kept for backward: fp32 [R], or [R, 2] for layer_norm.
at::Tensor rms_norm(const at::Tensor& x_RD, const at::Tensor& w_D, double eps, at::Tensor& scale_R);
at::Tensor layer_norm(const at::Tensor& x_RD, const at::Tensor& w_D, const at::Tensor& b_D,
                      double eps, at::Tensor& stats_R2);
// dx = residual (undefined: none) + the gradient; dx may be dy. The sums, fp32, are added to.
void rms_norm_back(const at::Tensor& dy_RD, const at::Tensor& x_RD, const at::Tensor& w_D,
                   const at::Tensor& scale_R, const at::Tensor& residual_RD, at::Tensor& dx_RD,
                   at::Tensor& dw_sum_D);
void layer_norm_back(const at::Tensor& dy_RD, const at::Tensor& x_RD, const at::Tensor& w_D,
                     const at::Tensor& stats_R2, const at::Tensor& residual_RD, at::Tensor& dx_RD,
                     at::Tensor& dw_sum_D, at::Tensor& db_sum_D);
// RMSNorm of the `heads` heads from column first_column on.
void head_norm(const at::Tensor& x, const at::Tensor& w_E, at::Tensor& y, at::Tensor& scale_RH,
               int64_t first_column, int64_t heads, double eps);
void head_norm_back(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& w_E,
                    const at::Tensor& scale_RH, at::Tensor& dx, at::Tensor& dw_sum_E,
                    int64_t first_column, int64_t heads);
// In place on the first `heads` heads of each row; cos, sin fp32 [T, E/2], positions int64 [R].
void rotate_rows(at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                 const at::Tensor& positions, int64_t heads, int64_t head_dim, float direction);
at::Tensor swiglu(const at::Tensor& gate_up);
void swiglu_back(const at::Tensor& dy, const at::Tensor& gate_up, at::Tensor& d_gate_up);
at::Tensor gelu_new(const at::Tensor& x);
void gelu_new_back(const at::Tensor& dy, const at::Tensor& x, at::Tensor& dx);
// sum_C += the column sums of dy's columns from first_column on.
void add_columns(const at::Tensor& sum_C, const at::Tensor& dy, int64_t first_column);
// sum_VD += the rows of dy, each to its token's row, in row order: the CPU's bits. Positions are
// tokens to it.
void add_token_rows(const at::Tensor& sum_VD, const at::Tensor& dy_RD, const at::Tensor& tokens_R);
// Cross-entropy of the rows, as cuda_kernels.h has it; losses_R is fp64.
void cross_entropy(const at::Tensor& logits_RV, const at::Tensor& labels_R, double z_loss,
                   double label_smoothing, float dy, bool want_gradients,
                   const at::Tensor& losses_R);
// sum += a b in fp32, from bf16 or fp32 matrices.
void add_product(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b);

// Causal softmax attention inside documents; each key head serves a group of H/K query heads.
struct AttentionShape {
  int64_t heads, key_heads, head_dim;
  int64_t window;  // keys that a query sees, its own included; 0: all up to its own
  bool fused;
};
// What backward needs beside qkv and the output.
struct AttentionKept {
  at::Tensor log_sum, random, unused;     // what the flash kernel returned
  std::vector<at::Tensor> probabilities;  // else: of each run of documents, [count*K, G*L, L]
};
// qkv [R, (H + 2K) E], as projected and rotated -> [R, H*E]. Fused and in bf16 by LibTorch's flash
// kernel (E a multiple of 8, at most 256), whose backward is the deterministic one (set_up_device),
// in its form for sequences of several lengths where documents have some; else, and in fp32, for
// which there is no flash kernel, with whole score matrices, one run of documents after the other.
at::Tensor attention(const AttentionShape& shape, const at::Tensor& qkv, const Documents& documents,
                     AttentionKept& kept);
// Returns d(qkv).
at::Tensor attention_back(const AttentionShape& shape, const at::Tensor& d_out,
                          const at::Tensor& qkv, const at::Tensor& out, const Documents& documents,
                          const AttentionKept& kept);

}  // namespace lockstep::core::cuda
