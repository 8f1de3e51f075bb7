#include "base/hash.h"
#include "core/kernels/cuda_math.cuh"

namespace lockstep::core::cuda {
namespace {

__device__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// gelu_new is x * sigmoid(2u) with u = sqrt(2/pi) (x + 0.044715 x^3).
constexpr float kTwiceRoot = 1.5957691216057308f;  // 2 sqrt(2/pi)
constexpr float kCubic = 0.044715f;

// Sums the rows of one token, if the run of its rows in `sorted` begins at this block.
template <typename T>
__global__ void add_token_rows_kernel(float* sum, const T* dy, const int64_t* sorted,
                                      const int64_t* order, int64_t rows, int64_t dim) {
  const int64_t first = blockIdx.x, token = sorted[first];
  if (first > 0 && sorted[first - 1] == token) return;
  for (int64_t c = threadIdx.x; c < dim; c += blockDim.x) {
    float total = sum[token * dim + c];
    for (int64_t i = first; i < rows && sorted[i] == token; ++i)
      total += load(dy[order[i] * dim + c]);
    sum[token * dim + c] = total;
  }
}

}  // namespace

template <typename T>
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

template <typename T>
void swiglu_forward(const T* gate_up, T* y, int64_t rows, int64_t dim) {
  for_each(rows * dim, [=] __device__(int64_t n) {
    const T* gate = gate_up + n / dim * 2 * dim + n % dim;
    const float g = load(*gate);
    store(y[n], g * sigmoid(g) * load(gate[dim]));
  });
}

template <typename T>
void swiglu_backward(const T* dy, const T* gate_up, T* d_gate_up, int64_t rows, int64_t dim) {
  for_each(rows * dim, [=] __device__(int64_t n) {
    const int64_t at = n / dim * 2 * dim + n % dim;
    const float g = load(gate_up[at]), u = load(gate_up[at + dim]), d = load(dy[n]);
    const float s = sigmoid(g);
    store(d_gate_up[at], d * u * s * (1.0f + g * (1.0f - s)));
    store(d_gate_up[at + dim], d * g * s);
  });
}

template <typename T>
void gelu_forward(const T* x, T* y, int64_t n) {
  for_each(n, [=] __device__(int64_t i) {
    const float v = load(x[i]);
    store(y[i], v * sigmoid(kTwiceRoot * (v + kCubic * v * v * v)));
  });
}

template <typename T>
void gelu_backward(const T* dy, const T* x, T* dx, int64_t n) {
  for_each(n, [=] __device__(int64_t i) {
    const float v = load(x[i]);
    const float s = sigmoid(kTwiceRoot * (v + kCubic * v * v * v));
    const float slope = kTwiceRoot * (1.0f + 3.0f * kCubic * v * v);
    store(dx[i], load(dy[i]) * (s + v * s * (1.0f - s) * slope));
  });
}

// A thread for each counter: it draws for four elements.
template <typename T>
void dropout(T* x, int64_t first, int64_t n, uint64_t key, uint64_t counter_high,
             uint32_t threshold, float scale) {
  constexpr int64_t kRun = 64, kLanes = 16;
  for_each((n + kRun - 1) / kRun * kLanes, [=] __device__(int64_t counter) {
    const int64_t begin = counter / kLanes * kRun + counter % kLanes;
    const Philox4 random = philox(key, counter_high, static_cast<uint64_t>(first / 4 + counter));
    for (int64_t w = 0; w < 4; ++w) {
      const int64_t i = begin + w * kLanes;
      if (i < n) store(x[i], random.word[w] >= threshold ? load(x[i]) * scale : 0.0f);
    }
  });
}

template <typename T>
void add_rows_by_token(float* sum, const T* dy, const int64_t* sorted, const int64_t* order,
                       int64_t rows, int64_t dim) {
  if (rows == 0) return;
  add_token_rows_kernel<<<static_cast<unsigned>(rows), 256, 0, current_stream()>>>(
      sum, dy, sorted, order, rows, dim);
  check_launch();
}

#define LOCKSTEP_INSTANTIATE(T)                                                                \
  template void rotate_heads(T*, const float*, const float*, const int64_t*, int64_t, int64_t, \
                             int64_t, int64_t, float);                                         \
  template void swiglu_forward(const T*, T*, int64_t, int64_t);                                \
  template void swiglu_backward(const T*, const T*, T*, int64_t, int64_t);                     \
  template void gelu_forward(const T*, T*, int64_t);                                           \
  template void gelu_backward(const T*, const T*, T*, int64_t);                                \
  template void dropout(T*, int64_t, int64_t, uint64_t, uint64_t, uint32_t, float);            \
  template void add_rows_by_token(float*, const T*, const int64_t*, const int64_t*, int64_t,   \
                                  int64_t);
LOCKSTEP_INSTANTIATE(float)
LOCKSTEP_INSTANTIATE(Bf16)

}  // namespace lockstep::core::cuda
