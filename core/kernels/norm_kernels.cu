#include "core/kernels/cuda_math.cuh"
#include "core/kernels/norm_kernels.h"

namespace lockstep::core {

using namespace cuda;

namespace {

// One block a vector: block b is head b % heads of row b / heads.
struct Vectors {
  int64_t heads, dim, row_stride;
  __device__ int64_t offset(int64_t b) const { return b / heads * row_stride + b % heads * dim; }
};

template <typename T, int Threads>
__global__ void __launch_bounds__(Threads, blocks_to_fill(Threads))
    rms_forward_kernel(const T* x, const T* w, T* y, float* scale_out, Vectors vectors, float eps,
                       float offset) {
  x += vectors.offset(blockIdx.x);
  y += vectors.offset(blockIdx.x);
  const float squares =
      block_sum<Threads>(vectors.dim, [=](int64_t i) { return load(x[i]) * load(x[i]); });
  const float scale = 1.0f / sqrtf(squares / static_cast<float>(vectors.dim) + eps);
  if (threadIdx.x == 0) scale_out[blockIdx.x] = scale;
  for (int64_t i = threadIdx.x; i < vectors.dim; i += Threads)
    store(y[i], load(x[i]) * scale * (load(w[i]) + offset));
}

// With s the scale and g = dy*(w + offset): dx = residual + s*g - x * s^3 * mean(g*x).
template <typename T, int Threads>
__global__ void __launch_bounds__(Threads, blocks_to_fill(Threads))
    rms_backward_kernel(const T* dy, const T* x, const T* w, const float* scale, const T* residual,
                        T* dx, Vectors vectors, float offset) {
  const int64_t first = vectors.offset(blockIdx.x);
  const float s = scale[blockIdx.x];
  const float sum = block_sum<Threads>(vectors.dim, [=](int64_t i) {
    return load(dy[first + i]) * (load(w[i]) + offset) * load(x[first + i]);
  });
  const float c = sum / static_cast<float>(vectors.dim) * s * s * s;
  for (int64_t i = threadIdx.x; i < vectors.dim; i += Threads) {
    const int64_t at = first + i;
    const float own = s * load(dy[at]) * (load(w[i]) + offset) - load(x[at]) * c;
    store(dx[at], residual == nullptr ? own : load(residual[at]) + own);
  }
}

template <typename T, int Threads>
__global__ void __launch_bounds__(Threads, blocks_to_fill(Threads))
    layer_forward_kernel(const T* x, const T* w, const T* b, T* y, float* stats_out, int64_t dim,
                         float eps) {
  x += blockIdx.x * dim;
  y += blockIdx.x * dim;
  const float count = static_cast<float>(dim);
  const float mean = block_sum<Threads>(dim, [=](int64_t i) { return load(x[i]); }) / count;
  const float squares = block_sum<Threads>(dim, [=](int64_t i) {
    const float centred = load(x[i]) - mean;
    return centred * centred;
  });
  const float scale = 1.0f / sqrtf(squares / count + eps);
  if (threadIdx.x == 0) {
    stats_out[2 * blockIdx.x] = mean;
    stats_out[2 * blockIdx.x + 1] = scale;
  }
  for (int64_t i = threadIdx.x; i < dim; i += Threads)
    store(y[i], (load(x[i]) - mean) * scale * load(w[i]) + load(b[i]));
}

// With s the scale, h = (x - mean) * s and g = dy*w: dx = residual + s * (g - mean(g) - h *
// mean(g*h)).
template <typename T, int Threads>
__global__ void __launch_bounds__(Threads, blocks_to_fill(Threads))
    layer_backward_kernel(const T* dy, const T* x, const T* w, const float* stats,
                          const T* residual, T* dx, int64_t dim) {
  const int64_t offset = blockIdx.x * dim;
  const float mean = stats[2 * blockIdx.x], s = stats[2 * blockIdx.x + 1];
  const float count = static_cast<float>(dim);
  const auto g = [=](int64_t i) { return load(dy[offset + i]) * load(w[i]); };
  const auto h = [=](int64_t i) { return (load(x[offset + i]) - mean) * s; };
  const float mean_g = block_sum<Threads>(dim, g) / count;
  const float mean_gh = block_sum<Threads>(dim, [=](int64_t i) { return g(i) * h(i); }) / count;
  for (int64_t i = threadIdx.x; i < dim; i += Threads) {
    const float own = s * (g(i) - mean_g - h(i) * mean_gh);
    store(dx[offset + i], residual == nullptr ? own : load(residual[offset + i]) + own);
  }
}

}  // namespace

template <typename Place, typename T>
void rms_norm_forward(const T* x, const T* w, T* y, float* scale_out, int64_t rows, int64_t heads,
                      int64_t dim, int64_t row_stride, float eps, float offset) {
  if (rows == 0) return;
  by_width(dim, [&](auto threads) {
    constexpr int kThreads = decltype(threads)::value;
    launch<rms_forward_kernel<T, kThreads>>(static_cast<unsigned>(rows * heads), kThreads, x, w, y,
                                            scale_out, Vectors{heads, dim, row_stride}, eps,
                                            offset);
  });
}

// The weight's gradient first: dx may be dy.
template <typename Place, typename T>
void rms_norm_backward(const T* dy, const T* x, const T* w, const float* scale, const T* residual,
                       T* dx, float* dw_sum, int64_t rows, int64_t heads, int64_t dim,
                       int64_t row_stride, float offset) {
  if (rows == 0) return;
  const Vectors vectors{heads, dim, row_stride};
  add_column_sums(dw_sum, rows * heads, dim, [=] __device__(int64_t v, int64_t c) {
    const int64_t at = vectors.offset(v) + c;
    return load(dy[at]) * load(x[at]) * scale[v];
  });
  by_width(dim, [&](auto threads) {
    constexpr int kThreads = decltype(threads)::value;
    launch<rms_backward_kernel<T, kThreads>>(static_cast<unsigned>(rows * heads), kThreads, dy, x,
                                             w, scale, residual, dx, vectors, offset);
  });
}

template <typename Place, typename T>
void layer_norm_forward(const T* x, const T* w, const T* b, T* y, float* stats_out, int64_t rows,
                        int64_t dim, float eps) {
  if (rows == 0) return;
  by_width(dim, [&](auto threads) {
    constexpr int kThreads = decltype(threads)::value;
    launch<layer_forward_kernel<T, kThreads>>(static_cast<unsigned>(rows), kThreads, x, w, b, y,
                                              stats_out, dim, eps);
  });
}

template <typename Place, typename T>
void layer_norm_backward(const T* dy, const T* x, const T* w, const float* stats, const T* residual,
                         T* dx, float* dw_sum, float* db_sum, int64_t rows, int64_t dim) {
  if (rows == 0) return;
  add_column_sums(dw_sum, rows, dim, [=] __device__(int64_t r, int64_t c) {
    const float h = (load(x[r * dim + c]) - stats[2 * r]) * stats[2 * r + 1];
    return load(dy[r * dim + c]) * h;
  });
  add_column_sums(db_sum, rows, dim,
                  [=] __device__(int64_t r, int64_t c) { return load(dy[r * dim + c]); });
  by_width(dim, [&](auto threads) {
    constexpr int kThreads = decltype(threads)::value;
    launch<layer_backward_kernel<T, kThreads>>(static_cast<unsigned>(rows), kThreads, dy, x, w,
                                               stats, residual, dx, dim);
  });
}

#define LOCKSTEP_INSTANTIATE(T)                                                                   \
  template void rms_norm_forward<OnCuda>(const T*, const T*, T*, float*, int64_t, int64_t,        \
                                         int64_t, int64_t, float, float);                         \
  template void rms_norm_backward<OnCuda>(const T*, const T*, const T*, const float*, const T*,   \
                                          T*, float*, int64_t, int64_t, int64_t, int64_t, float); \
  template void layer_norm_forward<OnCuda>(const T*, const T*, const T*, T*, float*, int64_t,     \
                                           int64_t, float);                                       \
  template void layer_norm_backward<OnCuda>(const T*, const T*, const T*, const float*, const T*, \
                                            T*, float*, float*, int64_t, int64_t);
LOCKSTEP_INSTANTIATE(float)
LOCKSTEP_INSTANTIATE(Bf16)

}  // namespace lockstep::core
