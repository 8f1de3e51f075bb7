#include "core/model/kernels.h"

#include <cmath>

#include "core/sharding/add_kernels.h"
#include "core/sharding/vector_clones.h"

namespace lockstep::core {
namespace {

constexpr int64_t kLanes = 16;

inline float load(float value) { return value; }
inline float load(Bf16 value) { return bf16_to_float(value.bits); }
inline void store(float& to, float value) { to = value; }
inline void store(Bf16& to, float value) { to.bits = float_to_bf16(value); }

// The lanes of a row's sum, folded in a fixed order.
inline float fold_lanes(const float* lanes) {
  float width8[8], width4[4];
  for (int i = 0; i < 8; ++i) width8[i] = lanes[i] + lanes[i + 8];
  for (int i = 0; i < 4; ++i) width4[i] = width8[i] + width8[i + 4];
  return (width4[0] + width4[2]) + (width4[1] + width4[3]);
}

// e^x by range reduction to [-ln2/2, ln2/2] and a degree-6 polynomial (Cephes' expf coefficients);
// about 2 ulp. Written without a library call so that it vectorizes and gives the same bits
// everywhere.
inline float exp_fast(float x) {
  x = x < -87.0f ? -87.0f : (x > 88.0f ? 88.0f : x);
  const float n_magic = x * 1.44269504088896341f + 12582912.0f;  // round to nearest integer
  const float n = n_magic - 12582912.0f;
  float r = x - n * 0.693359375f;
  r = r - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const int32_t exponent = (__builtin_bit_cast(int32_t, n_magic) - 0x4b400000 + 127) << 23;
  return p * __builtin_bit_cast(float, exponent);
}

inline float sigmoid(float x) { return 1.0f / (1.0f + exp_fast(-x)); }

}  // namespace

#define LOCKSTEP_KERNEL \
  template <typename T> \
  __attribute__((always_inline)) inline void

LOCKSTEP_KERNEL rms_forward(const T* __restrict x, const T* __restrict w, T* __restrict y,
                            float* __restrict scale_out, int64_t rows, int64_t dim, float eps) {
  for (int64_t r = 0; r < rows; ++r, x += dim, y += dim) {
    float lanes[kLanes] = {};
    int64_t i = 0;
    for (; i + kLanes <= dim; i += kLanes)
      for (int64_t k = 0; k < kLanes; ++k) lanes[k] += load(x[i + k]) * load(x[i + k]);
    for (; i < dim; ++i) lanes[i % kLanes] += load(x[i]) * load(x[i]);
    const float scale = 1.0f / std::sqrt(fold_lanes(lanes) / static_cast<float>(dim) + eps);
    scale_out[r] = scale;
#pragma GCC ivdep
    for (int64_t k = 0; k < dim; ++k) store(y[k], load(x[k]) * scale * load(w[k]));
  }
}

// With s the scale and g = dy*w: dx = s*g - x * s^3 * mean(g*x); dw += dy * x * s.
LOCKSTEP_KERNEL rms_backward(const T* __restrict dy, const T* __restrict x, const T* __restrict w,
                             const float* __restrict scale, T* __restrict dx,
                             float* __restrict dw_sum, int64_t rows, int64_t dim) {
  for (int64_t r = 0; r < rows; ++r, x += dim, dy += dim, dx += dim) {
    const float s = scale[r];
    float lanes[kLanes] = {};
    int64_t i = 0;
    for (; i + kLanes <= dim; i += kLanes)
      for (int64_t k = 0; k < kLanes; ++k)
        lanes[k] += load(dy[i + k]) * load(w[i + k]) * load(x[i + k]);
    for (; i < dim; ++i) lanes[i % kLanes] += load(dy[i]) * load(w[i]) * load(x[i]);
    const float c = fold_lanes(lanes) / static_cast<float>(dim) * s * s * s;
#pragma GCC ivdep
    for (int64_t k = 0; k < dim; ++k) {
      const float xk = load(x[k]), dyk = load(dy[k]);
      dw_sum[k] += dyk * xk * s;
      store(dx[k], s * dyk * load(w[k]) - xk * c);
    }
  }
}

LOCKSTEP_KERNEL layer_forward(const T* __restrict x, const T* __restrict w, const T* __restrict b,
                              T* __restrict y, float* __restrict stats_out, int64_t rows,
                              int64_t dim, float eps) {
  for (int64_t r = 0; r < rows; ++r, x += dim, y += dim) {
    float sums[kLanes] = {}, squares[kLanes] = {};
    for (int64_t i = 0; i + kLanes <= dim; i += kLanes)
      for (int64_t k = 0; k < kLanes; ++k) sums[k] += load(x[i + k]);
    for (int64_t i = dim / kLanes * kLanes; i < dim; ++i) sums[i % kLanes] += load(x[i]);
    const float mean = fold_lanes(sums) / static_cast<float>(dim);
    for (int64_t i = 0; i + kLanes <= dim; i += kLanes)
      for (int64_t k = 0; k < kLanes; ++k) {
        const float centred = load(x[i + k]) - mean;
        squares[k] += centred * centred;
      }
    for (int64_t i = dim / kLanes * kLanes; i < dim; ++i) {
      const float centred = load(x[i]) - mean;
      squares[i % kLanes] += centred * centred;
    }
    const float scale = 1.0f / std::sqrt(fold_lanes(squares) / static_cast<float>(dim) + eps);
    stats_out[2 * r] = mean;
    stats_out[2 * r + 1] = scale;
#pragma GCC ivdep
    for (int64_t k = 0; k < dim; ++k)
      store(y[k], (load(x[k]) - mean) * scale * load(w[k]) + load(b[k]));
  }
}

// With s the scale, h = (x - mean) * s and g = dy*w: dx = s * (g - mean(g) - h * mean(g*h));
// dw += dy * h; db += dy.
LOCKSTEP_KERNEL layer_backward(const T* __restrict dy, const T* __restrict x, const T* __restrict w,
                               const float* __restrict stats, T* __restrict dx,
                               float* __restrict dw_sum, float* __restrict db_sum, int64_t rows,
                               int64_t dim) {
  for (int64_t r = 0; r < rows; ++r, x += dim, dy += dim, dx += dim) {
    const float mean = stats[2 * r], s = stats[2 * r + 1];
    float sums[kLanes] = {}, products[kLanes] = {};
    const auto add = [&](int64_t i, int64_t lane) {
      const float g = load(dy[i]) * load(w[i]);
      sums[lane] += g;
      products[lane] += g * ((load(x[i]) - mean) * s);
    };
    for (int64_t i = 0; i + kLanes <= dim; i += kLanes)
      for (int64_t k = 0; k < kLanes; ++k) add(i + k, k);
    for (int64_t i = dim / kLanes * kLanes; i < dim; ++i) add(i, i % kLanes);
    const float mean_g = fold_lanes(sums) / static_cast<float>(dim);
    const float mean_gh = fold_lanes(products) / static_cast<float>(dim);
#pragma GCC ivdep
    for (int64_t k = 0; k < dim; ++k) {
      const float h = (load(x[k]) - mean) * s, dyk = load(dy[k]);
      dw_sum[k] += dyk * h;
      db_sum[k] += dyk;
      store(dx[k], s * (dyk * load(w[k]) - mean_g - h * mean_gh));
    }
  }
}

LOCKSTEP_KERNEL rotate(T* __restrict x, const float* __restrict cos, const float* __restrict sin,
                       int64_t rows, int64_t seq_len, int64_t heads, int64_t head_dim,
                       int64_t row_stride, float direction) {
  const int64_t half = head_dim / 2;
  for (int64_t r = 0; r < rows; ++r) {
    const float* c = cos + (r % seq_len) * half;
    const float* s = sin + (r % seq_len) * half;
    for (int64_t h = 0; h < heads; ++h) {
      T* __restrict head = x + r * row_stride + h * head_dim;
#pragma GCC ivdep
      for (int64_t i = 0; i < half; ++i) {
        const float a = load(head[i]), b = load(head[i + half]), t = s[i] * direction;
        store(head[i], a * c[i] - b * t);
        store(head[i + half], b * c[i] + a * t);
      }
    }
  }
}

LOCKSTEP_KERNEL swiglu(const T* __restrict gate_up, T* __restrict y, int64_t rows, int64_t dim) {
  for (int64_t r = 0; r < rows; ++r, gate_up += 2 * dim, y += dim)
#pragma GCC ivdep
    for (int64_t i = 0; i < dim; ++i) {
      const float g = load(gate_up[i]);
      store(y[i], g * sigmoid(g) * load(gate_up[i + dim]));
    }
}

LOCKSTEP_KERNEL swiglu_back(const T* __restrict dy, const T* __restrict gate_up,
                            T* __restrict d_gate_up, int64_t rows, int64_t dim) {
  for (int64_t r = 0; r < rows; ++r, gate_up += 2 * dim, d_gate_up += 2 * dim, dy += dim)
#pragma GCC ivdep
    for (int64_t i = 0; i < dim; ++i) {
      const float g = load(gate_up[i]), u = load(gate_up[i + dim]), d = load(dy[i]);
      const float s = sigmoid(g);
      store(d_gate_up[i], d * u * s * (1.0f + g * (1.0f - s)));
      store(d_gate_up[i + dim], d * g * s);
    }
}

// gelu_new is x * sigmoid(2u) with u = sqrt(2/pi) (x + 0.044715 x^3).
constexpr float kTwiceRoot = 1.5957691216057308f;  // 2 sqrt(2/pi)
constexpr float kCubic = 0.044715f;

LOCKSTEP_KERNEL gelu(const T* __restrict x, T* __restrict y, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const float v = load(x[i]);
    store(y[i], v * sigmoid(kTwiceRoot * (v + kCubic * v * v * v)));
  }
}

LOCKSTEP_KERNEL gelu_back(const T* __restrict dy, const T* __restrict x, T* __restrict dx,
                          int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const float v = load(x[i]);
    const float s = sigmoid(kTwiceRoot * (v + kCubic * v * v * v));
    const float slope = kTwiceRoot * (1.0f + 3.0f * kCubic * v * v);
    store(dx[i], load(dy[i]) * (s + v * s * (1.0f - s) * slope));
  }
}

LOCKSTEP_VECTOR_CLONES
void cross_entropy(float* logits, const int64_t* labels, int64_t rows, int64_t vocab, float dy,
                   bool want_gradients, double* loss_sum, int64_t* valid) {
  for (int64_t r = 0; r < rows; ++r, logits += vocab) {
    const int64_t label = labels[r];
    if (label < 0) {
      if (want_gradients)
        for (int64_t i = 0; i < vocab; ++i) logits[i] = 0.0f;
      continue;
    }
    float top = logits[0];
    for (int64_t i = 1; i < vocab; ++i) top = logits[i] > top ? logits[i] : top;
    const float at_label = logits[label];
    float lanes[kLanes] = {};
    int64_t i = 0;
    for (; i + kLanes <= vocab; i += kLanes)
      for (int64_t k = 0; k < kLanes; ++k) lanes[k] += exp_fast(logits[i + k] - top);
    for (; i < vocab; ++i) lanes[i % kLanes] += exp_fast(logits[i] - top);
    const float sum = fold_lanes(lanes);
    *loss_sum += std::log(static_cast<double>(sum)) + static_cast<double>(top) -
                 static_cast<double>(at_label);
    ++*valid;
    if (!want_gradients) continue;
    const float factor = dy / sum;
    for (int64_t k = 0; k < vocab; ++k) logits[k] = exp_fast(logits[k] - top) * factor;
    logits[label] -= dy;
  }
}

// Each public template is instantiated for both element types, each with its vector clones.
#define LOCKSTEP_INSTANTIATE(T)                                                                    \
  template <>                                                                                      \
  LOCKSTEP_VECTOR_CLONES void rms_norm_forward(const T* x, const T* w, T* y, float* scale,         \
                                               int64_t rows, int64_t dim, float eps) {             \
    rms_forward(x, w, y, scale, rows, dim, eps);                                                   \
  }                                                                                                \
  template <>                                                                                      \
  LOCKSTEP_VECTOR_CLONES void rms_norm_backward(const T* dy, const T* x, const T* w,               \
                                                const float* scale, T* dx, float* dw,              \
                                                int64_t rows, int64_t dim) {                       \
    rms_backward(dy, x, w, scale, dx, dw, rows, dim);                                              \
  }                                                                                                \
  template <>                                                                                      \
  LOCKSTEP_VECTOR_CLONES void head_norm_forward(const T* x, const T* w, T* y, float* scale,        \
                                                int64_t rows, int64_t heads, int64_t head_dim,     \
                                                int64_t row_stride, float eps) {                   \
    for (int64_t r = 0; r < rows; ++r)                                                             \
      rms_forward(x + r * row_stride, w, y + r * row_stride, scale + r * heads, heads, head_dim,   \
                  eps);                                                                            \
  }                                                                                                \
  template <>                                                                                      \
  LOCKSTEP_VECTOR_CLONES void head_norm_backward(                                                  \
      const T* dy, const T* x, const T* w, const float* scale, T* dx, float* dw, int64_t rows,     \
      int64_t heads, int64_t head_dim, int64_t row_stride) {                                       \
    for (int64_t r = 0; r < rows; ++r)                                                             \
      rms_backward(dy + r * row_stride, x + r * row_stride, w, scale + r * heads,                  \
                   dx + r * row_stride, dw, heads, head_dim);                                      \
  }                                                                                                \
  template <>                                                                                      \
  LOCKSTEP_VECTOR_CLONES void layer_norm_forward(const T* x, const T* w, const T* b, T* y,         \
                                                 float* stats, int64_t rows, int64_t dim,          \
                                                 float eps) {                                      \
    layer_forward(x, w, b, y, stats, rows, dim, eps);                                              \
  }                                                                                                \
  template <>                                                                                      \
  LOCKSTEP_VECTOR_CLONES void layer_norm_backward(const T* dy, const T* x, const T* w,             \
                                                  const float* stats, T* dx, float* dw, float* db, \
                                                  int64_t rows, int64_t dim) {                     \
    layer_backward(dy, x, w, stats, dx, dw, db, rows, dim);                                        \
  }                                                                                                \
  template <>                                                                                      \
  LOCKSTEP_VECTOR_CLONES void gelu_forward(const T* x, T* y, int64_t n) {                          \
    gelu(x, y, n);                                                                                 \
  }                                                                                                \
  template <>                                                                                      \
  LOCKSTEP_VECTOR_CLONES void gelu_backward(const T* dy, const T* x, T* dx, int64_t n) {           \
    gelu_back(dy, x, dx, n);                                                                       \
  }                                                                                                \
  template <>                                                                                      \
  LOCKSTEP_VECTOR_CLONES void rotate_heads(T* x, const float* cos, const float* sin, int64_t rows, \
                                           int64_t seq_len, int64_t heads, int64_t head_dim,       \
                                           int64_t row_stride, float direction) {                  \
    rotate(x, cos, sin, rows, seq_len, heads, head_dim, row_stride, direction);                    \
  }                                                                                                \
  template <>                                                                                      \
  LOCKSTEP_VECTOR_CLONES void swiglu_forward(const T* gate_up, T* y, int64_t rows, int64_t dim) {  \
    swiglu(gate_up, y, rows, dim);                                                                 \
  }                                                                                                \
  template <>                                                                                      \
  LOCKSTEP_VECTOR_CLONES void swiglu_backward(const T* dy, const T* gate_up, T* d, int64_t rows,   \
                                              int64_t dim) {                                       \
    swiglu_back(dy, gate_up, d, rows, dim);                                                        \
  }
LOCKSTEP_INSTANTIATE(float)
LOCKSTEP_INSTANTIATE(Bf16)

}  // namespace lockstep::core
