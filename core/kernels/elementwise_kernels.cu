#include "core/kernels/cuda_math.cuh"
#include "core/kernels/elementwise_kernels.h"

namespace lockstep::core {

using namespace cuda;

namespace {

__device__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// An activation is x * share(x). slope(by, x, s), with s = share(x), is `by` times its derivative.
struct Silu {
  __device__ static float share(float x) { return sigmoid(x); }
  __device__ static float slope(float by, float x, float s) {
    return by * s * (1.0f + x * (1.0f - s));
  }
};
// gelu_new is x * sigmoid(2u) with u = sqrt(2/pi) (x + 0.044715 x^3).
struct GeluNew {
  static constexpr float kTwiceRoot = 1.5957691216057308f;  // 2 sqrt(2/pi)
  static constexpr float kCubic = 0.044715f;
  __device__ static float share(float x) { return sigmoid(kTwiceRoot * (x + kCubic * x * x * x)); }
  __device__ static float slope(float by, float x, float s) {
    const float of_share = kTwiceRoot * (1.0f + 3.0f * kCubic * x * x);
    return by * (s + x * s * (1.0f - s) * of_share);
  }
};

template <typename Activation, typename T>
void gated_forward(const T* gate_up, T* y, int64_t rows, int64_t dim) {
  constexpr int kRun = kRunOf<T>;
  const bool in_runs = dim % kRun == 0 && aligned<kRun>(gate_up, y);
  for_each_run_of_rows<kRun>(rows, dim, in_runs, [=] __device__(int64_t row, Run<kRun> run) {
    const T* const gate = gate_up + row * 2 * dim;
    each_of(
        run, [](float g, float u, float& out) { out = g * Activation::share(g) * u; }, gate,
        gate + dim, y + row * dim);
  });
}

template <typename Activation, typename T>
void gated_backward(const T* dy, T* gate_up, int64_t rows, int64_t dim) {
  constexpr int kRun = kRunOf<T>;
  const bool in_runs = dim % kRun == 0 && aligned<kRun>(gate_up, dy);
  for_each_run_of_rows<kRun>(rows, dim, in_runs, [=] __device__(int64_t row, Run<kRun> run) {
    T* const gate = gate_up + row * 2 * dim;
    each_of(
        run,
        [](float& gate_and_grad, float& up_and_grad, float d) {
          const float g = gate_and_grad, s = Activation::share(g);
          gate_and_grad = Activation::slope(d * up_and_grad, g, s);
          up_and_grad = d * g * s;
        },
        gate, gate + dim, dy + row * dim);
  });
}

// Runs of pairs; none has two heads.
template <int N, typename T>
void rotate(T* x, const float* cos, const float* sin, const int64_t* positions, int64_t rows,
            int64_t heads, int64_t head_dim, int64_t row_stride, float direction) {
  const auto half = static_cast<unsigned>(head_dim / 2);
  for_each_run_of_rows<N>(rows, heads * half, true, [=] __device__(int64_t row, Run<N> run) {
    const auto pair = static_cast<unsigned>(run.first);
    const unsigned head = pair / half, i = pair - head * half;
    T* const first = x + row * row_stride + head * head_dim + i;
    const int64_t angle = positions[row] * half + i;
    each<N>(
        [=](float& a, float& b, float c, float sine) {
          const float s = sine * direction, old_a = a;
          a = old_a * c - b * s;
          b = b * c + old_a * s;
        },
        first, first + half, cos + angle, sin + angle);
  });
}

}  // namespace

template <typename Place, typename T>
void rotate_heads(T* x, const float* cos, const float* sin, const int64_t* positions, int64_t rows,
                  int64_t heads, int64_t head_dim, int64_t row_stride, float direction) {
  constexpr int kRun = kRunOf<float>;  // of the angles
  const auto turn =
      head_dim % (2 * kRun) == 0 && row_stride % kRun == 0 && aligned<kRun>(x, cos, sin)
          ? rotate<kRun, T>
          : rotate<1, T>;
  turn(x, cos, sin, positions, rows, heads, head_dim, row_stride, direction);
}

template <typename Place, typename T>
void swiglu_forward(const T* gate_up, T* y, int64_t rows, int64_t dim) {
  gated_forward<Silu>(gate_up, y, rows, dim);
}
template <typename Place, typename T>
void swiglu_backward(const T* dy, T* gate_up, int64_t rows, int64_t dim) {
  gated_backward<Silu>(dy, gate_up, rows, dim);
}
template <typename Place, typename T>
void geglu_forward(const T* gate_up, T* y, int64_t rows, int64_t dim) {
  gated_forward<GeluNew>(gate_up, y, rows, dim);
}
template <typename Place, typename T>
void geglu_backward(const T* dy, T* gate_up, int64_t rows, int64_t dim) {
  gated_backward<GeluNew>(dy, gate_up, rows, dim);
}

template <typename Place, typename T>
void gelu_forward(const T* x, T* y, int64_t n) {
  constexpr int kRun = kRunOf<T>;
  for_each_run<kRun>(n, aligned<kRun>(x, y), [=] __device__(Run<kRun> run) {
    each_of(
        run, [](float v, float& out) { out = v * GeluNew::share(v); }, x, y);
  });
}

template <typename Place, typename T>
void gelu_backward(const T* dy, T* x, int64_t n) {
  constexpr int kRun = kRunOf<T>;
  for_each_run<kRun>(n, aligned<kRun>(dy, x), [=] __device__(Run<kRun> run) {
    each_of(
        run, [](float d, float& v) { v = GeluNew::slope(d, v, GeluNew::share(v)); }, dy, x);
  });
}

template <typename Place, typename T>
void soft_cap_forward(T* x, int64_t n, float scale, float cap) {
  constexpr int kRun = kRunOf<T>;
  const float inner = scale / cap;
  for_each_run<kRun>(n, aligned<kRun>(x), [=] __device__(Run<kRun> run) {
    each_of(
        run, [=](float& value) { value = cap * tanhf(inner * value); }, x);
  });
}

template <typename Place, typename T>
void soft_cap_backward(const T* y, T* dy, int64_t n, float scale, float cap) {
  constexpr int kRun = kRunOf<T>;
  const float inverse = 1.0f / cap;
  for_each_run<kRun>(n, aligned<kRun>(y, dy), [=] __device__(Run<kRun> run) {
    each_of(
        run,
        [=](float capped, float& d) {
          const float t = capped * inverse;
          d = d * scale * (1.0f - t * t);
        },
        y, dy);
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
