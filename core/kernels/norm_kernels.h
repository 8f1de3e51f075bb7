// RMSNorm and LayerNorm of rows of plain memory, forward and backward. No Torch. T is float or
// Bf16; arithmetic is fp32, rounded once on store. The order of every sum is fixed by its shape: on
// the CPU sixteen fp32 lanes over a row, and the gradients of weights row after row.
#pragma once

#include <cstdint>

#include "core/kernels/kernel_types.h"

namespace lockstep::core {

// x += residual (null: none) first, rounded, and lying as x does; then
// y = x * rsqrt(mean(x^2) + eps) * (w + offset). Row r holds `heads` vectors of dim from x +
// r * row_stride on, which are normed one by one (a plain norm: one head, row_stride = dim); y lies
// as x does.
// scale_out [rows, heads] keeps the rsqrt for backward.
template <typename Place, typename T>
void rms_norm_forward(T* x, const T* residual, const T* w, T* y, float* scale_out, int64_t rows,
                      int64_t heads, int64_t dim, int64_t row_stride, float eps, float offset = 0);
// dx = residual (null: none) + the gradient, in one rounding; dx may be dy, and all lie as x does.
// dw_sum [dim] fp32 is added to.
template <typename Place, typename T>
void rms_norm_backward(const T* dy, const T* x, const T* w, const float* scale, const T* residual,
                       T* dx, float* dw_sum, int64_t rows, int64_t heads, int64_t dim,
                       int64_t row_stride, float offset = 0);

// x += residual as above; then y = (x - mean(x)) * rsqrt(var(x) + eps) * w + b; stats_out [rows, 2]
// keeps mean and rsqrt.
template <typename Place, typename T>
void layer_norm_forward(T* x, const T* residual, const T* w, const T* b, T* y, float* stats_out,
                        int64_t rows, int64_t dim, float eps);
// As rms_norm_backward.
template <typename Place, typename T>
void layer_norm_backward(const T* dy, const T* x, const T* w, const float* stats, const T* residual,
                         T* dx, float* dw_sum, float* db_sum, int64_t rows, int64_t dim);

}  // namespace lockstep::core
