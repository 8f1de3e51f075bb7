// The decoder's elementwise and row-wise kernels on plain memory. No Torch. T is float or bf16
// (uint16_t bits); arithmetic is fp32 (reductions over a row: sixteen fp32 lanes in a fixed order),
// rounded once on store. The order of every sum is fixed by the code, not by threads or
// instruction set.
#pragma once

#include <cstdint>

#include "core/kernels/bf16.h"

namespace lockstep::core {

// y = x * rsqrt(mean(x^2) + eps) * w, row by row [rows, dim]; scale_out [rows] keeps the rsqrt for
// backward.
template <typename T>
void rms_norm_forward(const T* x, const T* w, T* y, float* scale_out, int64_t rows, int64_t dim,
                      float eps);
// dx [rows, dim] = residual (null: none) + the gradient, in one rounding; dx may be dy. dw_sum
// [dim] fp32 is added to, row after row.
template <typename T>
void rms_norm_backward(const T* dy, const T* x, const T* w, const float* scale, const T* residual,
                       T* dx, float* dw_sum, int64_t rows, int64_t dim);

// The same over heads: row r holds `heads` vectors of head_dim from x + r * row_stride on;
// scale_out [rows, heads]. x and y (dy and dx) have the same layout and do not overlap.
template <typename T>
void head_norm_forward(const T* x, const T* w, T* y, float* scale_out, int64_t rows, int64_t heads,
                       int64_t head_dim, int64_t row_stride, float eps);
template <typename T>
void head_norm_backward(const T* dy, const T* x, const T* w, const float* scale, T* dx,
                        float* dw_sum, int64_t rows, int64_t heads, int64_t head_dim,
                        int64_t row_stride);

// y = (x - mean(x)) * rsqrt(var(x) + eps) * w + b; stats_out [rows, 2] keeps mean and rsqrt.
template <typename T>
void layer_norm_forward(const T* x, const T* w, const T* b, T* y, float* stats_out, int64_t rows,
                        int64_t dim, float eps);
// As rms_norm_backward.
template <typename T>
void layer_norm_backward(const T* dy, const T* x, const T* w, const float* stats, const T* residual,
                         T* dx, float* dw_sum, float* db_sum, int64_t rows, int64_t dim);

// Rotates pairs (x[i], x[i + half]) of every head in place; x [rows, row_stride] with `heads`
// heads of `head_dim` starting at x, row r by the angles of positions[r]: cos, sin [seq_len,
// head_dim/2]. direction -1 turns back (backward).
template <typename T>
void rotate_heads(T* x, const float* cos, const float* sin, const int64_t* positions, int64_t rows,
                  int64_t heads, int64_t head_dim, int64_t row_stride, float direction);

// y = silu(gate) * up; gate and up are the halves of rows of gate_up [rows, 2*dim].
template <typename T>
void swiglu_forward(const T* gate_up, T* y, int64_t rows, int64_t dim);
// gate_up [rows, 2*dim] becomes its gradient, from dy [rows, dim].
template <typename T>
void swiglu_backward(const T* dy, T* gate_up, int64_t rows, int64_t dim);

// y = 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), transformers' gelu_new, on n elements.
template <typename T>
void gelu_forward(const T* x, T* y, int64_t n);
// x becomes its gradient.
template <typename T>
void gelu_backward(const T* dy, T* x, int64_t n);

// Scores of some queries and keys of a sequence: rows = queries * group, row r of query
// first_query + r / group; column k of key first_key + k. A query sees no later key, nor (window >
// 0) those `window` or more back. Every query sees at least one key of the block.
struct ScoreBlock {
  int64_t first_query, rows, group, first_key, keys, window;
};
// In place on scores [rows, keys]: softmax(scale * row) over the keys that are seen, 0 for others.
template <typename T>
void masked_softmax(T* scores, const ScoreBlock& block, float scale);
// dp becomes the scores' gradient, scale * p * (dp - sum(p * dp)) by row; 0 for unseen keys.
template <typename T>
void masked_softmax_backward(const T* p, T* dp, const ScoreBlock& block, float scale);

// What a token's loss is, beside the cross-entropy. With s = log(sum(exp(logits))) and e =
// label_smoothing:
//   loss       s - (1 - e) logits[label] - e mean(logits) + z_loss s^2
//   gradient   (1 + 2 z_loss s) softmax(logits) - (1 - e) onehot(label) - e / vocab
// (torch.nn.functional.cross_entropy's label_smoothing; z-loss as PaLM, section 5.)
struct TokenLoss {
  double z_loss = 0, label_smoothing = 0;
};
// losses[r] is row r's, fp64; 0 for label -100. With want_gradients logits [rows, vocab] become
// their gradient times dy (0 for label -100); without, they are used up.
template <typename T>
void cross_entropy(T* logits, const int64_t* labels, int64_t rows, int64_t vocab,
                   const TokenLoss& loss, float dy, bool want_gradients, double* losses);

// One random bit for each element of x, drawn by counter: x[i] *= scale where it is kept, else 0.
// Element e = 64 b + 16 w + l of the tensor is kept where word w of Philox(key, counter_high,
// 16 b + l) is at least `threshold`. `first`, x's place in the tensor, is a multiple of 64.
struct DropoutDraw {
  uint64_t key, counter_high;
  uint32_t threshold;  // probability of dropping * 2^32
  float scale;         // 1 / (1 - probability)
};
inline constexpr int64_t kDropoutRun = 64;
template <typename T>
void dropout(T* x, int64_t first, int64_t n, const DropoutDraw& draw);

}  // namespace lockstep::core
