// The decoder's elementwise and row-wise kernels on plain memory. No Torch. T is float or bf16
// (uint16_t bits); arithmetic is fp32 (reductions over a row: sixteen fp32 lanes in a fixed order),
// rounded once on store. The order of every sum is fixed by the code, not by threads or
// instruction set.
#pragma once

#include <cstdint>

namespace lockstep::core {

struct Bf16 {
  uint16_t bits;
};

// y = x * rsqrt(mean(x^2) + eps) * w, row by row [rows, dim]; scale_out [rows] keeps the rsqrt for
// backward.
template <typename T>
void rms_norm_forward(const T* x, const T* w, T* y, float* scale_out, int64_t rows, int64_t dim,
                      float eps);
// dx [rows, dim] and dw_sum [dim] fp32 (added to, row after row).
template <typename T>
void rms_norm_backward(const T* dy, const T* x, const T* w, const float* scale, T* dx,
                       float* dw_sum, int64_t rows, int64_t dim);

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
// dx [rows, dim]; dw_sum and db_sum [dim] fp32 (added to, row after row).
template <typename T>
void layer_norm_backward(const T* dy, const T* x, const T* w, const float* stats, T* dx,
                         float* dw_sum, float* db_sum, int64_t rows, int64_t dim);

// Rotates pairs (x[i], x[i + half]) of every head in place; x [rows, row_stride] with `heads`
// heads of `head_dim` starting at x; cos, sin [seq_len, head_dim/2]; row r is position r %
// seq_len. direction -1 turns back (backward).
template <typename T>
void rotate_heads(T* x, const float* cos, const float* sin, int64_t rows, int64_t seq_len,
                  int64_t heads, int64_t head_dim, int64_t row_stride, float direction);

// y = silu(gate) * up; gate and up are the halves of rows of gate_up [rows, 2*dim].
template <typename T>
void swiglu_forward(const T* gate_up, T* y, int64_t rows, int64_t dim);
// d_gate_up [rows, 2*dim] from dy [rows, dim].
template <typename T>
void swiglu_backward(const T* dy, const T* gate_up, T* d_gate_up, int64_t rows, int64_t dim);

// y = 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), transformers' gelu_new, on n elements.
template <typename T>
void gelu_forward(const T* x, T* y, int64_t n);
template <typename T>
void gelu_backward(const T* dy, const T* x, T* dx, int64_t n);

// logits [rows, vocab] fp32 -> in place softmax - onehot, times dy (zero rows for label -100).
// Adds the valid rows' losses to *loss_sum in row order, fp64. With want_gradients false the
// logits stay as they were.
void cross_entropy(float* logits, const int64_t* labels, int64_t rows, int64_t vocab, float dy,
                   bool want_gradients, double* loss_sum, int64_t* valid);

}  // namespace lockstep::core
