// Rotary positions and activations on plain memory. No Torch. T is float or Bf16; arithmetic is
// fp32, rounded once on store.
#pragma once

#include <cstdint>

#include "core/kernels/kernel_types.h"

namespace lockstep::core {

// Rotates pairs (x[i], x[i + half]) of every head in place; x [rows, row_stride] with `heads`
// heads of `head_dim` starting at x, row r by the angles of positions[r]: cos, sin [seq_len,
// head_dim/2]. direction -1 turns back (backward).
template <typename Place, typename T>
void rotate_heads(T* x, const float* cos, const float* sin, const int64_t* positions, int64_t rows,
                  int64_t heads, int64_t head_dim, int64_t row_stride, float direction);

// y = silu(gate) * up; gate and up are the halves of rows of gate_up [rows, 2*dim].
template <typename Place, typename T>
void swiglu_forward(const T* gate_up, T* y, int64_t rows, int64_t dim);
// gate_up [rows, 2*dim] becomes its gradient, from dy [rows, dim].
template <typename Place, typename T>
void swiglu_backward(const T* dy, T* gate_up, int64_t rows, int64_t dim);

// As swiglu, with gelu_new (below) in the place of silu.
template <typename Place, typename T>
void geglu_forward(const T* gate_up, T* y, int64_t rows, int64_t dim);
template <typename Place, typename T>
void geglu_backward(const T* dy, T* gate_up, int64_t rows, int64_t dim);

// x = cap * tanh(scale * x / cap) in place, on n elements.
template <typename Place, typename T>
void soft_cap_forward(T* x, int64_t n, float scale, float cap);
// dy becomes x's gradient, from what forward gave: dy * scale * (1 - (y / cap)^2).
template <typename Place, typename T>
void soft_cap_backward(const T* y, T* dy, int64_t n, float scale, float cap);

// y = 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), transformers' gelu_new, on n elements.
template <typename Place, typename T>
void gelu_forward(const T* x, T* y, int64_t n);
// x becomes its gradient.
template <typename Place, typename T>
void gelu_backward(const T* dy, T* x, int64_t n);

}  // namespace lockstep::core
