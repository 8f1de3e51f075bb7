#include "core/kernels/elementwise_kernels.h"

#include <algorithm>

#include "core/kernels/kernel_math.h"

namespace lockstep::core {
namespace {

LOCKSTEP_KERNEL rotate(T* x, const float* cos, const float* sin, const int64_t* positions,
                       int64_t rows, int64_t heads, int64_t head_dim, int64_t row_stride,
                       float direction) {
  const int64_t half = head_dim / 2;
  float a_run[kRun], b_run[kRun], new_a_run[kRun], new_b_run[kRun];
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t h = 0; h < heads; ++h) {
      T* head = x + r * row_stride + h * head_dim;
      for (int64_t i = 0; i < half; i += kRun) {
        const int64_t n = std::min(kRun, half - i);
        const float* c = cos + positions[r] * half + i;
        const float* s = sin + positions[r] * half + i;
        const float *a = widened(head + i, a_run, n), *b = widened(head + half + i, b_run, n);
        float *new_a = room_for(head + i, new_a_run), *new_b = room_for(head + half + i, new_b_run);
#pragma GCC ivdep
        for (int64_t k = 0; k < n; ++k) {
          const float ak = a[k], bk = b[k], t = s[k] * direction;
          new_a[k] = ak * c[k] - bk * t;
          new_b[k] = bk * c[k] + ak * t;
        }
        narrowed(head + i, new_a, n);
        narrowed(head + half + i, new_b, n);
      }
    }
}

LOCKSTEP_KERNEL swiglu(const T* gate_up, T* y, int64_t rows, int64_t dim) {
  float g_run[kRun], u_run[kRun], y_run[kRun];
  for (int64_t r = 0; r < rows; ++r, gate_up += 2 * dim, y += dim)
    for (int64_t i = 0; i < dim; i += kRun) {
      const int64_t n = std::min(kRun, dim - i);
      const float *g = widened(gate_up + i, g_run, n), *u = widened(gate_up + dim + i, u_run, n);
      float* yf = room_for(y + i, y_run);
#pragma GCC ivdep
      for (int64_t k = 0; k < n; ++k) yf[k] = g[k] * sigmoid(g[k]) * u[k];
      narrowed(y + i, yf, n);
    }
}

LOCKSTEP_KERNEL swiglu_back(const T* dy, T* gate_up, int64_t rows, int64_t dim) {
  float d_run[kRun], g_run[kRun], u_run[kRun], dg_run[kRun], du_run[kRun];
  for (int64_t r = 0; r < rows; ++r, gate_up += 2 * dim, dy += dim)
    for (int64_t i = 0; i < dim; i += kRun) {
      const int64_t n = std::min(kRun, dim - i);
      T *gate = gate_up + i, *up = gate_up + dim + i;
      const float *g = widened(gate, g_run, n), *u = widened(up, u_run, n);
      const float* d = widened(dy + i, d_run, n);
      float *dg = room_for(gate, dg_run), *du = room_for(up, du_run);
#pragma GCC ivdep
      for (int64_t k = 0; k < n; ++k) {
        const float gk = g[k], uk = u[k], dk = d[k], s = sigmoid(gk);
        dg[k] = dk * uk * s * (1.0f + gk * (1.0f - s));
        du[k] = dk * gk * s;
      }
      narrowed(gate, dg, n);
      narrowed(up, du, n);
    }
}

// gelu_new is x * sigmoid(2u) with u = sqrt(2/pi) (x + 0.044715 x^3).
constexpr float kTwiceRoot = 1.5957691216057308f;  // 2 sqrt(2/pi)
constexpr float kCubic = 0.044715f;

LOCKSTEP_KERNEL gelu(const T* x, T* y, int64_t count) {
  float x_run[kRun], y_run[kRun];
  for (int64_t i = 0; i < count; i += kRun) {
    const int64_t n = std::min(kRun, count - i);
    const float* v = widened(x + i, x_run, n);
    float* yf = room_for(y + i, y_run);
#pragma GCC ivdep
    for (int64_t k = 0; k < n; ++k)
      yf[k] = v[k] * sigmoid(kTwiceRoot * (v[k] + kCubic * v[k] * v[k] * v[k]));
    narrowed(y + i, yf, n);
  }
}

LOCKSTEP_KERNEL gelu_back(const T* dy, T* x, int64_t count) {
  float x_run[kRun], d_run[kRun], dx_run[kRun];
  for (int64_t i = 0; i < count; i += kRun) {
    const int64_t n = std::min(kRun, count - i);
    const float *xf = widened(x + i, x_run, n), *d = widened(dy + i, d_run, n);
    float* dx = room_for(x + i, dx_run);
#pragma GCC ivdep
    for (int64_t k = 0; k < n; ++k) {
      const float v = xf[k];
      const float s = sigmoid(kTwiceRoot * (v + kCubic * v * v * v));
      const float slope = kTwiceRoot * (1.0f + 3.0f * kCubic * v * v);
      dx[k] = d[k] * (s + v * s * (1.0f - s) * slope);
    }
    narrowed(x + i, dx, n);
  }
}

LOCKSTEP_KERNEL geglu(const T* gate_up, T* y, int64_t rows, int64_t dim) {
  float g_run[kRun], u_run[kRun], y_run[kRun];
  for (int64_t r = 0; r < rows; ++r, gate_up += 2 * dim, y += dim)
    for (int64_t i = 0; i < dim; i += kRun) {
      const int64_t n = std::min(kRun, dim - i);
      const float *g = widened(gate_up + i, g_run, n), *u = widened(gate_up + dim + i, u_run, n);
      float* yf = room_for(y + i, y_run);
#pragma GCC ivdep
      for (int64_t k = 0; k < n; ++k)
        yf[k] = g[k] * sigmoid(kTwiceRoot * (g[k] + kCubic * g[k] * g[k] * g[k])) * u[k];
      narrowed(y + i, yf, n);
    }
}

LOCKSTEP_KERNEL geglu_back(const T* dy, T* gate_up, int64_t rows, int64_t dim) {
  float d_run[kRun], g_run[kRun], u_run[kRun], dg_run[kRun], du_run[kRun];
  for (int64_t r = 0; r < rows; ++r, gate_up += 2 * dim, dy += dim)
    for (int64_t i = 0; i < dim; i += kRun) {
      const int64_t n = std::min(kRun, dim - i);
      T *gate = gate_up + i, *up = gate_up + dim + i;
      const float *g = widened(gate, g_run, n), *u = widened(up, u_run, n);
      const float* d = widened(dy + i, d_run, n);
      float *dg = room_for(gate, dg_run), *du = room_for(up, du_run);
#pragma GCC ivdep
      for (int64_t k = 0; k < n; ++k) {
        const float v = g[k], uk = u[k], dk = d[k];
        const float s = sigmoid(kTwiceRoot * (v + kCubic * v * v * v));
        const float slope = kTwiceRoot * (1.0f + 3.0f * kCubic * v * v);
        dg[k] = dk * uk * (s + v * s * (1.0f - s) * slope);
        du[k] = dk * v * s;
      }
      narrowed(gate, dg, n);
      narrowed(up, du, n);
    }
}

// Cephes' tanhf: a polynomial near 0, where 1 - 2 / (e^2x + 1) would lose digits.
LOCKSTEP_INLINE float tanh_fast(float x) {
  const float z = x * x;
  float p = -5.70498872745e-3f;
  p = p * z + 2.06390887954e-2f;
  p = p * z - 5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z - 3.33332819422e-1f;
  const float small = p * z * x + x;
  const float large = 1.0f - 2.0f / (exp_fast(2.0f * x) + 1.0f);
  return z < 0.390625f ? small : large;
}

LOCKSTEP_KERNEL cap_scores(T* x, int64_t count, float scale, float cap) {
  float x_run[kRun], y_run[kRun];
  const float inner = scale / cap;
  for (int64_t i = 0; i < count; i += kRun) {
    const int64_t n = std::min(kRun, count - i);
    const float* v = widened(x + i, x_run, n);
    float* y = room_for(x + i, y_run);
#pragma GCC ivdep
    for (int64_t k = 0; k < n; ++k) y[k] = cap * tanh_fast(inner * v[k]);
    narrowed(x + i, y, n);
  }
}

LOCKSTEP_KERNEL cap_scores_back(const T* y, T* dy, int64_t count, float scale, float cap) {
  float y_run[kRun], d_run[kRun], dx_run[kRun];
  const float inverse = 1.0f / cap;
  for (int64_t i = 0; i < count; i += kRun) {
    const int64_t n = std::min(kRun, count - i);
    const float *yf = widened(y + i, y_run, n), *d = widened(dy + i, d_run, n);
    float* dx = room_for(dy + i, dx_run);
#pragma GCC ivdep
    for (int64_t k = 0; k < n; ++k) {
      const float t = yf[k] * inverse;
      dx[k] = d[k] * scale * (1.0f - t * t);
    }
    narrowed(dy + i, dx, n);
  }
}

}  // namespace

#define LOCKSTEP_INSTANTIATE(T)                                                                    \
  LOCKSTEP_CLONED gelu_forward<OnCpu>(const T* x, T* y, int64_t n) { gelu(x, y, n); }              \
  LOCKSTEP_CLONED gelu_backward<OnCpu>(const T* dy, T* x, int64_t n) { gelu_back(dy, x, n); }      \
  LOCKSTEP_CLONED rotate_heads<OnCpu>(T * x, const float* cos, const float* sin,                   \
                                      const int64_t* positions, int64_t rows, int64_t heads,       \
                                      int64_t head_dim, int64_t row_stride, float direction) {     \
    rotate(x, cos, sin, positions, rows, heads, head_dim, row_stride, direction);                  \
  }                                                                                                \
  LOCKSTEP_CLONED geglu_forward<OnCpu>(const T* gate_up, T* y, int64_t rows, int64_t dim) {        \
    geglu(gate_up, y, rows, dim);                                                                  \
  }                                                                                                \
  LOCKSTEP_CLONED geglu_backward<OnCpu>(const T* dy, T* gate_up, int64_t rows, int64_t dim) {      \
    geglu_back(dy, gate_up, rows, dim);                                                            \
  }                                                                                                \
  LOCKSTEP_CLONED soft_cap_forward<OnCpu>(T * x, int64_t n, float scale, float cap) {              \
    cap_scores(x, n, scale, cap);                                                                  \
  }                                                                                                \
  LOCKSTEP_CLONED soft_cap_backward<OnCpu>(const T* y, T* dy, int64_t n, float scale, float cap) { \
    cap_scores_back(y, dy, n, scale, cap);                                                         \
  }                                                                                                \
  LOCKSTEP_CLONED swiglu_forward<OnCpu>(const T* gate_up, T* y, int64_t rows, int64_t dim) {       \
    swiglu(gate_up, y, rows, dim);                                                                 \
  }                                                                                                \
  LOCKSTEP_CLONED swiglu_backward<OnCpu>(const T* dy, T* gate_up, int64_t rows, int64_t dim) {     \
    swiglu_back(dy, gate_up, rows, dim);                                                           \
  }
LOCKSTEP_INSTANTIATE(float)
LOCKSTEP_INSTANTIATE(Bf16)

}  // namespace lockstep::core
