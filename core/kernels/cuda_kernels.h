// The kernels of kernels.h on device memory and the current stream. No Torch. T is float or Bf16;
// arithmetic is fp32, rounded once on store. Every sum has an order that its shape fixes, without
// atomics: the same bits each time, but, where a row or a column is summed, not the CPU's.
#pragma once

#include <cstdint>

#include "core/kernels/kernels.h"

namespace lockstep::core::cuda {

// Row r holds `heads` vectors of dim from x + r * row_stride on (a plain norm: one head, row_stride
// = dim); scale_out [rows, heads]. y = x * rsqrt(mean(x^2) + eps) * w.
template <typename T>
void rms_norm_forward(const T* x, const T* w, T* y, float* scale_out, int64_t rows, int64_t heads,
                      int64_t dim, int64_t row_stride, float eps);
// dx = residual (null: none) + the gradient, in one rounding; dx may be dy. dw_sum [dim] fp32 is
// added to.
template <typename T>
void rms_norm_backward(const T* dy, const T* x, const T* w, const float* scale, const T* residual,
                       T* dx, float* dw_sum, int64_t rows, int64_t heads, int64_t dim,
                       int64_t row_stride);

// y = (x - mean(x)) * rsqrt(var(x) + eps) * w + b; stats_out [rows, 2] keeps mean and rsqrt.
template <typename T>
void layer_norm_forward(const T* x, const T* w, const T* b, T* y, float* stats_out, int64_t rows,
                        int64_t dim, float eps);
template <typename T>
void layer_norm_backward(const T* dy, const T* x, const T* w, const float* stats, const T* residual,
                         T* dx, float* dw_sum, float* db_sum, int64_t rows, int64_t dim);

// Pairs (x[i], x[i + head_dim/2]) of every head in place, row r by the angles of positions[r]: cos,
// sin [seq_len, head_dim/2].
template <typename T>
void rotate_heads(T* x, const float* cos, const float* sin, const int64_t* positions, int64_t rows,
                  int64_t heads, int64_t head_dim, int64_t row_stride, float direction);

// y = silu(gate) * up of the halves of rows of gate_up [rows, 2*dim]; d_gate_up may be gate_up.
template <typename T>
void swiglu_forward(const T* gate_up, T* y, int64_t rows, int64_t dim);
template <typename T>
void swiglu_backward(const T* dy, const T* gate_up, T* d_gate_up, int64_t rows, int64_t dim);

// transformers' gelu_new on n elements; dx may be x.
template <typename T>
void gelu_forward(const T* x, T* y, int64_t n);
template <typename T>
void gelu_backward(const T* dy, const T* x, T* dx, int64_t n);

// In place on scores [rows, seq_len]: row r, of query r % seq_len, becomes softmax(scale * row)
// over the keys its query sees (not later ones, nor those `window` back; 0: all), 0 elsewhere.
template <typename T>
void masked_softmax(T* scores, int64_t rows, int64_t seq_len, int64_t window, float scale);
// dp becomes scale * p * (dp - sum(p * dp)) by row; 0 for unseen keys.
template <typename T>
void masked_softmax_backward(const T* p, T* dp, int64_t rows, int64_t seq_len, int64_t window,
                             float scale);

// losses[r] = s - (1 - e) logits[label] - e mean(logits) + z_loss s^2, fp64, with e =
// label_smoothing and s = log(sum(exp(logits))); 0 for label -100. With want_gradients logits
// [rows, vocab] become the gradient times dy (0 for label -100); without, they stay.
template <typename T>
void cross_entropy(T* logits, const int64_t* labels, int64_t rows, int64_t vocab, double z_loss,
                   double label_smoothing, float dy, bool want_gradients, double* losses);

// Element e = 64 b + 16 w + l of the tensor that x is [first, first + n) of: times `scale` where
// word w of Philox(key, counter_high, 16 b + l) is at least `threshold`, else 0. Requires: `first`
// is a multiple of 64.
template <typename T>
void dropout(T* x, int64_t first, int64_t n, uint64_t key, uint64_t counter_high,
             uint32_t threshold, float scale);

// sum[token, dim] += the rows of dy [rows, dim] of that token, in row order. `sorted`: the rows'
// tokens in ascending order and order[i] the row that sorted[i] is of; equal ones in row order.
template <typename T>
void add_rows_by_token(float* sum, const T* dy, const int64_t* sorted, const int64_t* order,
                       int64_t rows, int64_t dim);
// sum[c] += column c of dy [rows, row_stride], for c in [0, columns).
template <typename T>
void add_columns(float* sum, const T* dy, int64_t rows, int64_t columns, int64_t row_stride);

}  // namespace lockstep::core::cuda
