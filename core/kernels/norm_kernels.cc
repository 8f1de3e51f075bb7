#include "core/kernels/norm_kernels.h"

#include <algorithm>
#include <cmath>

#include "core/kernels/kernel_math.h"

namespace lockstep::core {
namespace {

const float kZeros[kRun] = {};

// x += residual (null: none), rounded; returns what x is then.
LOCKSTEP_INLINE const float* summed(float* x, const float* residual, float*, int64_t n) {
  if (residual == nullptr) return x;
#pragma GCC ivdep
  for (int64_t k = 0; k < n; ++k) x[k] += residual[k];
  return x;
}
LOCKSTEP_INLINE const float* summed(Bf16* x, const Bf16* residual, float* run, int64_t n) {
  if (residual == nullptr) return widened(x, run, n);
#pragma GCC ivdep
  for (int64_t k = 0; k < n; ++k) {
    const uint32_t word = bf16_word(bf16_to_float(x[k].bits) + bf16_to_float(residual[k].bits));
    x[k].bits = static_cast<uint16_t>(word >> 16);
    run[k] = __builtin_bit_cast(float, word & 0xffff0000u);
  }
  return run;
}

// Row r holds `heads` vectors of dim from x + r * row_stride on.
LOCKSTEP_KERNEL rms_forward(T* x, const T* residual, const T* w, T* y, float* scale_out,
                            int64_t rows, int64_t heads, int64_t dim, int64_t row_stride, float eps,
                            float offset) {
  float x_run[kRun], w_run[kRun], y_run[kRun];
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t first = r * row_stride, end = first + heads * dim; first < end; first += dim) {
      float lanes[kLanes] = {};
      for (int64_t i = 0; i < dim; i += kRun) {
        const int64_t at = first + i, n = std::min(kRun, dim - i);
        const float* xf = summed(x + at, residual == nullptr ? nullptr : residual + at, x_run, n);
        add_to_lanes(lanes, n, [&](int64_t k) { return xf[k] * xf[k]; });
      }
      const float scale = 1.0f / std::sqrt(fold_lanes(lanes) / static_cast<float>(dim) + eps);
      *scale_out++ = scale;
      for (int64_t i = 0; i < dim; i += kRun) {
        const int64_t n = std::min(kRun, dim - i);
        const float *xf = widened(x + first + i, x_run, n), *wf = widened(w + i, w_run, n);
        float* yf = room_for(y + first + i, y_run);
#pragma GCC ivdep
        for (int64_t k = 0; k < n; ++k) yf[k] = xf[k] * scale * (wf[k] + offset);
        narrowed(y + first + i, yf, n);
      }
    }
}

// With s the scale and g = dy*(w + offset): dx = residual + s*g - x * s^3 * mean(g*x); dw += dy * x
// * s.
LOCKSTEP_KERNEL rms_backward(const T* dy, const T* x, const T* w, const float* scale,
                             const T* residual, T* dx, float* dw_sum, int64_t rows, int64_t heads,
                             int64_t dim, int64_t row_stride, float offset) {
  float dy_run[kRun], x_run[kRun], w_run[kRun], residual_run[kRun], dx_run[kRun];
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t first = r * row_stride, end = first + heads * dim; first < end; first += dim) {
      const float s = *scale++;
      float lanes[kLanes] = {};
      for (int64_t i = 0; i < dim; i += kRun) {
        const int64_t at = first + i, n = std::min(kRun, dim - i);
        const float *d = widened(dy + at, dy_run, n), *xf = widened(x + at, x_run, n);
        const float* wf = widened(w + i, w_run, n);
        add_to_lanes(lanes, n, [&](int64_t k) { return d[k] * (wf[k] + offset) * xf[k]; });
      }
      const float c = fold_lanes(lanes) / static_cast<float>(dim) * s * s * s;
      for (int64_t i = 0; i < dim; i += kRun) {
        const int64_t at = first + i, n = std::min(kRun, dim - i);
        const float *d = widened(dy + at, dy_run, n), *xf = widened(x + at, x_run, n);
        const float* wf = widened(w + i, w_run, n);
        const float* added = residual == nullptr ? kZeros : widened(residual + at, residual_run, n);
        float *out = room_for(dx + at, dx_run), *dw = dw_sum + i;
#pragma GCC ivdep
        for (int64_t k = 0; k < n; ++k) {
          const float dk = d[k];
          dw[k] += dk * xf[k] * s;
          out[k] = added[k] + (s * dk * (wf[k] + offset) - xf[k] * c);
        }
        narrowed(dx + at, out, n);
      }
    }
}

LOCKSTEP_KERNEL layer_forward(T* x, const T* residual, const T* w, const T* b, T* y,
                              float* stats_out, int64_t rows, int64_t dim, float eps) {
  float x_run[kRun], w_run[kRun], b_run[kRun], y_run[kRun];
  for (int64_t r = 0; r < rows; ++r, x += dim, y += dim) {
    float sums[kLanes] = {}, squares[kLanes] = {};
    for (int64_t i = 0; i < dim; i += kRun) {
      const int64_t n = std::min(kRun, dim - i);
      const float* xf =
          summed(x + i, residual == nullptr ? nullptr : residual + r * dim + i, x_run, n);
      add_to_lanes(sums, n, [&](int64_t k) { return xf[k]; });
    }
    const float mean = fold_lanes(sums) / static_cast<float>(dim);
    for (int64_t i = 0; i < dim; i += kRun) {
      const int64_t n = std::min(kRun, dim - i);
      const float* xf = widened(x + i, x_run, n);
      add_to_lanes(squares, n, [&](int64_t k) { return (xf[k] - mean) * (xf[k] - mean); });
    }
    const float scale = 1.0f / std::sqrt(fold_lanes(squares) / static_cast<float>(dim) + eps);
    stats_out[2 * r] = mean;
    stats_out[2 * r + 1] = scale;
    for (int64_t i = 0; i < dim; i += kRun) {
      const int64_t n = std::min(kRun, dim - i);
      const float *xf = widened(x + i, x_run, n), *wf = widened(w + i, w_run, n);
      const float* bf = widened(b + i, b_run, n);
      float* yf = room_for(y + i, y_run);
#pragma GCC ivdep
      for (int64_t k = 0; k < n; ++k) yf[k] = (xf[k] - mean) * scale * wf[k] + bf[k];
      narrowed(y + i, yf, n);
    }
  }
}

// With s the scale, h = (x - mean) * s and g = dy*w: dx = residual + s * (g - mean(g) - h *
// mean(g*h)); dw += dy * h; db += dy.
LOCKSTEP_KERNEL layer_backward(const T* dy, const T* x, const T* w, const float* stats,
                               const T* residual, T* dx, float* dw_sum, float* db_sum, int64_t rows,
                               int64_t dim) {
  float dy_run[kRun], x_run[kRun], w_run[kRun], residual_run[kRun], dx_run[kRun];
  for (int64_t r = 0; r < rows; ++r, x += dim, dy += dim, dx += dim) {
    const float mean = stats[2 * r], s = stats[2 * r + 1];
    float sums[kLanes] = {}, products[kLanes] = {};
    for (int64_t i = 0; i < dim; i += kRun) {
      const int64_t n = std::min(kRun, dim - i);
      const float *d = widened(dy + i, dy_run, n), *xf = widened(x + i, x_run, n);
      const float* wf = widened(w + i, w_run, n);
      add_to_lanes(sums, n, [&](int64_t k) { return d[k] * wf[k]; });
      add_to_lanes(products, n, [&](int64_t k) { return d[k] * wf[k] * ((xf[k] - mean) * s); });
    }
    const float mean_g = fold_lanes(sums) / static_cast<float>(dim);
    const float mean_gh = fold_lanes(products) / static_cast<float>(dim);
    for (int64_t i = 0; i < dim; i += kRun) {
      const int64_t n = std::min(kRun, dim - i);
      const float *d = widened(dy + i, dy_run, n), *xf = widened(x + i, x_run, n);
      const float* wf = widened(w + i, w_run, n);
      const float* added =
          residual == nullptr ? kZeros : widened(residual + r * dim + i, residual_run, n);
      float *out = room_for(dx + i, dx_run), *dw = dw_sum + i, *db = db_sum + i;
#pragma GCC ivdep
      for (int64_t k = 0; k < n; ++k) {
        const float h = (xf[k] - mean) * s, dk = d[k];
        dw[k] += dk * h;
        db[k] += dk;
        out[k] = added[k] + s * (dk * wf[k] - mean_g - h * mean_gh);
      }
      narrowed(dx + i, out, n);
    }
  }
}

}  // namespace

#define LOCKSTEP_INSTANTIATE(T)                                                                   \
  LOCKSTEP_CLONED rms_norm_forward<OnCpu>(T * x, const T* residual, const T* w, T* y,             \
                                          float* scale, int64_t rows, int64_t heads, int64_t dim, \
                                          int64_t row_stride, float eps, float offset) {          \
    rms_forward(x, residual, w, y, scale, rows, heads, dim, row_stride, eps, offset);             \
  }                                                                                               \
  LOCKSTEP_CLONED rms_norm_backward<OnCpu>(                                                       \
      const T* dy, const T* x, const T* w, const float* scale, const T* residual, T* dx,          \
      float* dw, int64_t rows, int64_t heads, int64_t dim, int64_t row_stride, float offset) {    \
    rms_backward(dy, x, w, scale, residual, dx, dw, rows, heads, dim, row_stride, offset);        \
  }                                                                                               \
  LOCKSTEP_CLONED layer_norm_forward<OnCpu>(T * x, const T* residual, const T* w, const T* b,     \
                                            T* y, float* stats, int64_t rows, int64_t dim,        \
                                            float eps) {                                          \
    layer_forward(x, residual, w, b, y, stats, rows, dim, eps);                                   \
  }                                                                                               \
  LOCKSTEP_CLONED layer_norm_backward<OnCpu>(const T* dy, const T* x, const T* w,                 \
                                             const float* stats, const T* residual, T* dx,        \
                                             float* dw, float* db, int64_t rows, int64_t dim) {   \
    layer_backward(dy, x, w, stats, residual, dx, dw, db, rows, dim);                             \
  }
LOCKSTEP_INSTANTIATE(float)
LOCKSTEP_INSTANTIATE(Bf16)

}  // namespace lockstep::core
