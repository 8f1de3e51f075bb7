#include "core/kernels/cuda_math.cuh"
#include "core/kernels/elementwise_kernels.h"

namespace lockstep::core {

using namespace cuda;

namespace {

__device__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// gelu_new is x * sigmoid(2u) with u = sqrt(2/pi) (x + 0.044715 x^3).
constexpr float kTwiceRoot = 1.5957691216057308f;  // 2 sqrt(2/pi)
constexpr float kCubic = 0.044715f;

}  // namespace

template <typename Place, typename T>
void rotate_heads(T* x, const float* cos, const float* sin, const int64_t* positions, int64_t rows,
                  int64_t heads, int64_t head_dim, int64_t row_stride, float direction) {
  const int64_t half = head_dim / 2;
  for_each(rows * heads * half, [=] __device__(int64_t n) {
    const int64_t i = n % half, h = n / half % heads, r = n / half / heads;
    T* head = x + r * row_stride + h * head_dim;
    const int64_t angle = positions[r] * half + i;
    const float c = cos[angle], s = sin[angle] * direction;
    const float a = load(head[i]), b = load(head[i + half]);
    store(head[i], a * c - b * s);
    store(head[i + half], b * c + a * s);
  });
}

template <typename Place, typename T>
void swiglu_forward(const T* gate_up, T* y, int64_t rows, int64_t dim) {
  for_each(rows * dim, [=] __device__(int64_t n) {
    const T* gate = gate_up + n / dim * 2 * dim + n % dim;
    const float g = load(*gate);
    store(y[n], g * sigmoid(g) * load(gate[dim]));
  });
}

template <typename Place, typename T>
void swiglu_backward(const T* dy, T* gate_up, int64_t rows, int64_t dim) {
  for_each(rows * dim, [=] __device__(int64_t n) {
    const int64_t at = n / dim * 2 * dim + n % dim;
    const float g = load(gate_up[at]), u = load(gate_up[at + dim]), d = load(dy[n]);
    const float s = sigmoid(g);
    store(gate_up[at], d * u * s * (1.0f + g * (1.0f - s)));
    store(gate_up[at + dim], d * g * s);
  });
}

template <typename Place, typename T>
void gelu_forward(const T* x, T* y, int64_t n) {
  for_each(n, [=] __device__(int64_t i) {
    const float v = load(x[i]);
    store(y[i], v * sigmoid(kTwiceRoot * (v + kCubic * v * v * v)));
  });
}

template <typename Place, typename T>
void gelu_backward(const T* dy, T* x, int64_t n) {
  for_each(n, [=] __device__(int64_t i) {
    const float v = load(x[i]);
    const float s = sigmoid(kTwiceRoot * (v + kCubic * v * v * v));
    const float slope = kTwiceRoot * (1.0f + 3.0f * kCubic * v * v);
    store(x[i], load(dy[i]) * (s + v * s * (1.0f - s) * slope));
  });
}

template <typename Place, typename T>
void geglu_forward(const T* gate_up, T* y, int64_t rows, int64_t dim) {
  for_each(rows * dim, [=] __device__(int64_t n) {
    const T* gate = gate_up + n / dim * 2 * dim + n % dim;
    const float g = load(*gate);
    store(y[n], g * sigmoid(kTwiceRoot * (g + kCubic * g * g * g)) * load(gate[dim]));
  });
}

template <typename Place, typename T>
void geglu_backward(const T* dy, T* gate_up, int64_t rows, int64_t dim) {
  for_each(rows * dim, [=] __device__(int64_t n) {
    const int64_t at = n / dim * 2 * dim + n % dim;
    const float v = load(gate_up[at]), u = load(gate_up[at + dim]), d = load(dy[n]);
    const float s = sigmoid(kTwiceRoot * (v + kCubic * v * v * v));
    const float slope = kTwiceRoot * (1.0f + 3.0f * kCubic * v * v);
    store(gate_up[at], d * u * (s + v * s * (1.0f - s) * slope));
    store(gate_up[at + dim], d * v * s);
  });
}

template <typename Place, typename T>
void soft_cap_forward(T* x, int64_t n, float scale, float cap) {
  const float inner = scale / cap;
  for_each(n, [=] __device__(int64_t i) { store(x[i], cap * tanhf(inner * load(x[i]))); });
}

template <typename Place, typename T>
void soft_cap_backward(const T* y, T* dy, int64_t n, float scale, float cap) {
  const float inverse = 1.0f / cap;
  for_each(n, [=] __device__(int64_t i) {
    const float t = load(y[i]) * inverse;
    store(dy[i], load(dy[i]) * scale * (1.0f - t * t));
  });
}

#define LOCKSTEP_INSTANTIATE(T)                                                               \
  template void rotate_heads<OnCuda>(T*, const float*, const float*, const int64_t*, int64_t, \
                                     int64_t, int64_t, int64_t, float);                       \
  template void geglu_forward<OnCuda>(const T*, T*, int64_t, int64_t);                        \
  template void geglu_backward<OnCuda>(const T*, T*, int64_t, int64_t);                       \
  template void soft_cap_forward<OnCuda>(T*, int64_t, float, float);                          \
  template void soft_cap_backward<OnCuda>(const T*, T*, int64_t, float, float);               \
  template void swiglu_forward<OnCuda>(const T*, T*, int64_t, int64_t);                       \
  template void swiglu_backward<OnCuda>(const T*, T*, int64_t, int64_t);                      \
  template void gelu_forward<OnCuda>(const T*, T*, int64_t);                                  \
  template void gelu_backward<OnCuda>(const T*, T*, int64_t);
LOCKSTEP_INSTANTIATE(float)
LOCKSTEP_INSTANTIATE(Bf16)

}  // namespace lockstep::core
