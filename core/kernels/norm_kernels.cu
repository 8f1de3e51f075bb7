#include "core/kernels/add_kernels.h"
#include "core/kernels/cuda_math.cuh"
#include "core/kernels/norm_kernels.h"

namespace lockstep::core {

using namespace cuda;

namespace {

// Vector v is head v % heads of row v / heads.
struct Vectors {
  unsigned heads;
  int64_t dim, row_stride;
  __device__ int64_t offset(unsigned v) const { return v / heads * row_stride + v % heads * dim; }
};

// A row of at most this many elements lies in the registers of its block, a run a thread.
constexpr int kWideThreads = 1024, kMostInRegisters = kWideThreads * kRowRun;

// As by_width, for a block that has a row in its registers.
template <typename F>
void by_runs(int64_t dim, F launch) {
  if (dim <= kWarp * kRowRun) {
    launch(std::integral_constant<int, kWarp>());
  } else if (dim <= 128 * kRowRun) {
    launch(std::integral_constant<int, 128>());
  } else if (dim <= 256 * kRowRun) {
    launch(std::integral_constant<int, 256>());
  } else if (dim <= 512 * kRowRun) {
    launch(std::integral_constant<int, 512>());
  } else {
    launch(std::integral_constant<int, kWideThreads>());
  }
}
// 64 registers at most.
constexpr int blocks_of_runs(int threads) { return threads == kWarp ? 32 : 1024 / threads; }

template <typename T>
__device__ const T* of_row(const T* residual, int64_t first) {
  return residual == nullptr ? nullptr : residual + first;
}

// What x's run from element `i` of its row on is, its residual's added, which is stored.
template <typename T>
__device__ Floats<kRowRun> add_run(const RowRuns& runs, T* x_row, int i,
                                   const Packed<T, kRowRun>& x,
                                   const Packed<T, kRowRun>& residual) {
  Floats<kRowRun> sum = widened(x);
  const Floats<kRowRun> more = widened(residual);
  for (int k = 0; k < kRowRun; ++k) sum.at[k] += more.at[k];
  runs.store(x_row, i, sum);
  return widened(packed_run<T>(sum));
}
// As it is for single elements; residual: null: none.
template <typename T>
__device__ float add_one(T* x, const T* residual, int64_t i) {
  if (residual != nullptr) store(x[i], load(x[i]) + load(residual[i]));
  return load(x[i]);
}

template <typename T, int Threads>
__global__ void __launch_bounds__(Threads, blocks_of_runs(Threads))
    rms_forward_kernel(T* x, const T* residual, const T* w, T* y, float* scale_out, Vectors vectors,
                       RowRuns runs, float eps, float offset) {
  const int own = static_cast<int>(threadIdx.x) * kRowRun;
  const int64_t first = vectors.offset(blockIdx.x);
  Packed<T, kRowRun> given[3];
  runs.load(own, {x + first, of_row(residual, first), w}, given);
  Floats<kRowRun> values =
      residual == nullptr ? widened(given[0]) : add_run(runs, x + first, own, given[0], given[1]);
  const Floats<kRowRun> weight = widened(given[2]);
  float squares = 0;
  for (const float value : values.at) squares += value * value;
  const float sum = block_sum<Threads>(Threads, [=](int64_t) { return squares; });
  const float scale = 1.0f / sqrtf(sum / static_cast<float>(vectors.dim) + eps);
  if (threadIdx.x == 0) scale_out[blockIdx.x] = scale;
  for (int k = 0; k < kRowRun; ++k) values.at[k] = values.at[k] * scale * (weight.at[k] + offset);
  runs.store(y + first, own, values);
}

// How many vectors a block of the backward has, one after the other; they are [first, end) of all.
constexpr int vectors_of_block(int threads) { return threads == kWarp ? 32 : 8; }
template <int Threads>
__device__ unsigned end_of_block(unsigned first, unsigned count) {
  const unsigned left = count - first;
  return left < vectors_of_block(Threads) ? count : first + vectors_of_block(Threads);
}

// With s the scale and g = dy*(w + offset): dx = residual + s*g - x * s^3 * mean(g*x). The weight's
// gradient over a block's vectors goes to a row of its own in dw_of_blocks.
template <typename T, int Threads>
__global__ void __launch_bounds__(Threads, blocks_of_runs(Threads))
    rms_backward_kernel(const T* dy, const T* x, const T* w, const float* scale, const T* residual,
                        T* dx, float* dw_of_blocks, Vectors vectors, unsigned count, RowRuns runs,
                        float offset) {
  const int own = static_cast<int>(threadIdx.x) * kRowRun;
  Floats<kRowRun> weight = runs.load(own, w, 0), dw{};
  for (float& value : weight.at) value += offset;
  const unsigned begin = blockIdx.x * vectors_of_block(Threads);
  const unsigned end = end_of_block<Threads>(begin, count);
  for (unsigned v = begin; v < end; ++v) {
    const int64_t first = vectors.offset(v);
    const float s = scale[v];
    Packed<T, kRowRun> given[3];
    runs.load(own, {x + first, dy + first, of_row(residual, first)}, given);
    const Floats<kRowRun> in = widened(given[0]), d = widened(given[1]);
    Floats<kRowRun> out = widened(given[2]);
    float dot = 0;
    for (int k = 0; k < kRowRun; ++k) {
      dot += d.at[k] * weight.at[k] * in.at[k];
      dw.at[k] += d.at[k] * in.at[k] * s;
    }
    if (Threads > kWarp && v > begin) __syncthreads();  // all have read the last sum
    const float sum = block_sum<Threads>(Threads, [=](int64_t) { return dot; });
    const float c = sum / static_cast<float>(vectors.dim) * s * s * s;
    for (int k = 0; k < kRowRun; ++k) out.at[k] += s * d.at[k] * weight.at[k] - in.at[k] * c;
    runs.store(dx + first, own, out);
  }
  const RowRuns sums{runs.size, runs.size % kRowRun == 0};
  sums.store(dw_of_blocks + blockIdx.x * vectors.dim, own, dw);
}

// Rows that no registers hold are read again.
template <typename T>
__global__ void __launch_bounds__(kWideThreads, blocks_to_fill(kWideThreads))
    wide_rms_forward_kernel(T* x, const T* residual, const T* w, T* y, float* scale_out,
                            Vectors vectors, float eps, float offset) {
  const int64_t first = vectors.offset(blockIdx.x);
  x += first;
  y += first;
  residual = of_row(residual, first);
  const float squares = block_sum<kWideThreads>(vectors.dim, [=](int64_t i) {
    const float value = add_one(x, residual, i);
    return value * value;
  });
  const float scale = 1.0f / sqrtf(squares / static_cast<float>(vectors.dim) + eps);
  if (threadIdx.x == 0) scale_out[blockIdx.x] = scale;
  for (int64_t i = threadIdx.x; i < vectors.dim; i += kWideThreads)
    store(y[i], load(x[i]) * scale * (load(w[i]) + offset));
}

template <typename T>
__global__ void __launch_bounds__(kWideThreads, blocks_to_fill(kWideThreads))
    wide_rms_backward_kernel(const T* dy, const T* x, const T* w, const float* scale,
                             const T* residual, T* dx, Vectors vectors, float offset) {
  const int64_t first = vectors.offset(blockIdx.x);
  const float s = scale[blockIdx.x];
  const float sum = block_sum<kWideThreads>(vectors.dim, [=](int64_t i) {
    return load(dy[first + i]) * (load(w[i]) + offset) * load(x[first + i]);
  });
  const float c = sum / static_cast<float>(vectors.dim) * s * s * s;
  for (int64_t i = threadIdx.x; i < vectors.dim; i += kWideThreads) {
    const int64_t at = first + i;
    const float own = s * load(dy[at]) * (load(w[i]) + offset) - load(x[at]) * c;
    store(dx[at], residual == nullptr ? own : load(residual[at]) + own);
  }
}

template <typename T, int Threads>
__global__ void __launch_bounds__(Threads, blocks_of_runs(Threads))
    layer_forward_kernel(T* x, const T* residual, const T* w, const T* b, T* y, float* stats_out,
                         RowRuns runs, float eps) {
  const int own = static_cast<int>(threadIdx.x) * kRowRun;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * runs.size;
  Packed<T, kRowRun> given[4];
  runs.load(own, {x + first, of_row(residual, first), w, b}, given);
  Floats<kRowRun> values =
      residual == nullptr ? widened(given[0]) : add_run(runs, x + first, own, given[0], given[1]);
  const float count = static_cast<float>(runs.size);
  float of_run = 0, squares = 0;
  for (const float value : values.at) of_run += value;
  const float mean = block_sum<Threads>(Threads, [=](int64_t) { return of_run; }) / count;
  for (int k = 0; k < kRowRun; ++k) {
    values.at[k] -= mean;
    if (own + k < runs.size) squares += values.at[k] * values.at[k];
  }
  const float sum = block_sum<Threads>(Threads, [=](int64_t) { return squares; });
  const float scale = 1.0f / sqrtf(sum / count + eps);
  if (threadIdx.x == 0) {
    stats_out[2 * blockIdx.x] = mean;
    stats_out[2 * blockIdx.x + 1] = scale;
  }
  for (int k = 0; k < kRowRun; ++k)
    values.at[k] = values.at[k] * scale * load(given[2].at[k]) + load(given[3].at[k]);
  runs.store(y + first, own, values);
}

template <typename T>
__global__ void __launch_bounds__(kWideThreads, blocks_to_fill(kWideThreads))
    wide_layer_forward_kernel(T* x, const T* residual, const T* w, const T* b, T* y,
                              float* stats_out, int64_t dim, float eps) {
  const int64_t first = blockIdx.x * dim;
  x += first;
  y += first;
  residual = of_row(residual, first);
  const float count = static_cast<float>(dim);
  const float mean =
      block_sum<kWideThreads>(dim, [=](int64_t i) { return add_one(x, residual, i); }) / count;
  const float squares = block_sum<kWideThreads>(dim, [=](int64_t i) {
    const float centred = load(x[i]) - mean;
    return centred * centred;
  });
  const float scale = 1.0f / sqrtf(squares / count + eps);
  if (threadIdx.x == 0) {
    stats_out[2 * blockIdx.x] = mean;
    stats_out[2 * blockIdx.x + 1] = scale;
  }
  for (int64_t i = threadIdx.x; i < dim; i += kWideThreads)
    store(y[i], (load(x[i]) - mean) * scale * load(w[i]) + load(b[i]));
}

// With s the scale, h = (x - mean) * s and g = dy*w: dx = residual + s * (g - mean(g) - h *
// mean(g*h)). The gradients of weight and bias over a block's rows go to two rows of its own in
// sums_of_blocks. What two sums need between rows are the barriers of each other.
template <typename T, int Threads>
__global__ void __launch_bounds__(Threads, blocks_of_runs(Threads))
    layer_backward_kernel(const T* dy, const T* x, const T* w, const float* stats,
                          const T* residual, T* dx, float* sums_of_blocks, unsigned rows,
                          RowRuns runs) {
  const int own = static_cast<int>(threadIdx.x) * kRowRun;
  const float count = static_cast<float>(runs.size);
  Floats<kRowRun> dw{}, db{};
  const unsigned begin = blockIdx.x * vectors_of_block(Threads);
  const unsigned end = end_of_block<Threads>(begin, rows);
  for (unsigned r = begin; r < end; ++r) {
    const int64_t first = static_cast<int64_t>(r) * runs.size;
    const float mean = stats[2 * r], s = stats[2 * r + 1];
    Packed<T, kRowRun> given[4];
    runs.load(own, {x + first, dy + first, of_row(residual, first), w}, given);
    Floats<kRowRun> h = widened(given[0]), g = widened(given[1]), out = widened(given[2]);
    float of_g = 0, of_gh = 0;
    for (int k = 0; k < kRowRun; ++k) {
      h.at[k] = (h.at[k] - mean) * s;
      dw.at[k] += g.at[k] * h.at[k];
      db.at[k] += g.at[k];
      g.at[k] *= load(given[3].at[k]);
      of_g += g.at[k];
      of_gh += g.at[k] * h.at[k];
    }
    const float mean_g = block_sum<Threads>(Threads, [=](int64_t) { return of_g; }) / count;
    const float mean_gh = block_sum<Threads>(Threads, [=](int64_t) { return of_gh; }) / count;
    for (int k = 0; k < kRowRun; ++k) out.at[k] += s * (g.at[k] - mean_g - h.at[k] * mean_gh);
    runs.store(dx + first, own, out);
  }
  const RowRuns sums{runs.size, runs.size % kRowRun == 0};
  float* const to = sums_of_blocks + 2 * static_cast<int64_t>(blockIdx.x) * runs.size;
  sums.store(to, own, dw);
  sums.store(to + runs.size, own, db);
}

template <typename T>
__global__ void __launch_bounds__(kWideThreads, blocks_to_fill(kWideThreads))
    wide_layer_backward_kernel(const T* dy, const T* x, const T* w, const float* stats,
                               const T* residual, T* dx, int64_t dim) {
  const int64_t offset = blockIdx.x * dim;
  const float mean = stats[2 * blockIdx.x], s = stats[2 * blockIdx.x + 1];
  const float count = static_cast<float>(dim);
  const auto g = [=](int64_t i) { return load(dy[offset + i]) * load(w[i]); };
  const auto h = [=](int64_t i) { return (load(x[offset + i]) - mean) * s; };
  const float mean_g = block_sum<kWideThreads>(dim, g) / count;
  const float mean_gh =
      block_sum<kWideThreads>(dim, [=](int64_t i) { return g(i) * h(i); }) / count;
  for (int64_t i = threadIdx.x; i < dim; i += kWideThreads) {
    const float own = s * (g(i) - mean_g - h(i) * mean_gh);
    store(dx[offset + i], residual == nullptr ? own : load(residual[offset + i]) + own);
  }
}

}  // namespace

template <typename Place, typename T>
void rms_norm_forward(T* x, const T* residual, const T* w, T* y, float* scale_out, int64_t rows,
                      int64_t heads, int64_t dim, int64_t row_stride, float eps, float offset) {
  if (rows == 0) return;
  const Vectors vectors{static_cast<unsigned>(heads), dim, row_stride};
  const auto count = static_cast<unsigned>(rows * heads);
  if (dim > kMostInRegisters) {
    launch<wide_rms_forward_kernel<T>>(count, kWideThreads, x, residual, w, y, scale_out, vectors,
                                       eps, offset);
    return;
  }
  const RowRuns runs = row_runs(dim, row_stride, x, residual, w, y);
  by_runs(dim, [&](auto threads) {
    constexpr int kThreads = decltype(threads)::value;
    launch<rms_forward_kernel<T, kThreads>>(count, kThreads, x, residual, w, y, scale_out, vectors,
                                            runs, eps, offset);
  });
}

// Of wide rows the weight's gradient comes first: dx may be dy.
template <typename Place, typename T>
void rms_norm_backward(const T* dy, const T* x, const T* w, const float* scale, const T* residual,
                       T* dx, float* dw_sum, int64_t rows, int64_t heads, int64_t dim,
                       int64_t row_stride, float offset) {
  if (rows == 0) return;
  const Vectors vectors{static_cast<unsigned>(heads), dim, row_stride};
  const auto count = static_cast<unsigned>(rows * heads);
  if (dim > kMostInRegisters) {
    add_column_sums(dw_sum, count, dim, [=] __device__(int64_t v, int64_t c) {
      const int64_t at = vectors.offset(static_cast<unsigned>(v)) + c;
      return load(dy[at]) * load(x[at]) * scale[v];
    });
    launch<wide_rms_backward_kernel<T>>(count, kWideThreads, dy, x, w, scale, residual, dx, vectors,
                                        offset);
    return;
  }
  const RowRuns runs = row_runs(dim, row_stride, dy, x, w, residual, dx);
  by_runs(dim, [&](auto threads) {
    constexpr int kThreads = decltype(threads)::value;
    const unsigned blocks = blocks_for(count, vectors_of_block(kThreads));
    const Scratch scratch(static_cast<size_t>(blocks * dim) * sizeof(float));
    float* const dw_of_blocks = scratch.as<float>();
    launch<rms_backward_kernel<T, kThreads>>(blocks, kThreads, dy, x, w, scale, residual, dx,
                                             dw_of_blocks, vectors, count, runs, offset);
    add_columns<OnCuda>(dw_sum, dw_of_blocks, blocks, dim, dim);
  });
}

template <typename Place, typename T>
void layer_norm_forward(T* x, const T* residual, const T* w, const T* b, T* y, float* stats_out,
                        int64_t rows, int64_t dim, float eps) {
  if (rows == 0) return;
  const auto count = static_cast<unsigned>(rows);
  if (dim > kMostInRegisters) {
    launch<wide_layer_forward_kernel<T>>(count, kWideThreads, x, residual, w, b, y, stats_out, dim,
                                         eps);
    return;
  }
  const RowRuns runs = row_runs(dim, dim, x, residual, w, b, y);
  by_runs(dim, [&](auto threads) {
    constexpr int kThreads = decltype(threads)::value;
    launch<layer_forward_kernel<T, kThreads>>(count, kThreads, x, residual, w, b, y, stats_out,
                                              runs, eps);
  });
}

template <typename Place, typename T>
void layer_norm_backward(const T* dy, const T* x, const T* w, const float* stats, const T* residual,
                         T* dx, float* dw_sum, float* db_sum, int64_t rows, int64_t dim) {
  if (rows == 0) return;
  const auto count = static_cast<unsigned>(rows);
  if (dim > kMostInRegisters) {
    add_column_sums(dw_sum, rows, dim, [=] __device__(int64_t r, int64_t c) {
      const float h = (load(x[r * dim + c]) - stats[2 * r]) * stats[2 * r + 1];
      return load(dy[r * dim + c]) * h;
    });
    add_columns<OnCuda>(db_sum, dy, rows, dim, dim);
    launch<wide_layer_backward_kernel<T>>(count, kWideThreads, dy, x, w, stats, residual, dx, dim);
    return;
  }
  const RowRuns runs = row_runs(dim, dim, dy, x, w, residual, dx);
  by_runs(dim, [&](auto threads) {
    constexpr int kThreads = decltype(threads)::value;
    const unsigned blocks = blocks_for(rows, vectors_of_block(kThreads));
    const Scratch scratch(static_cast<size_t>(2 * dim * blocks) * sizeof(float));
    float* const sums = scratch.as<float>();
    launch<layer_backward_kernel<T, kThreads>>(blocks, kThreads, dy, x, w, stats, residual, dx,
                                               sums, count, runs);
    add_columns<OnCuda>(dw_sum, sums, blocks, dim, 2 * dim);
    add_columns<OnCuda>(db_sum, sums + dim, blocks, dim, 2 * dim);
  });
}

#define LOCKSTEP_INSTANTIATE(T)                                                                   \
  template void rms_norm_forward<OnCuda>(T*, const T*, const T*, T*, float*, int64_t, int64_t,    \
                                         int64_t, int64_t, float, float);                         \
  template void rms_norm_backward<OnCuda>(const T*, const T*, const T*, const float*, const T*,   \
                                          T*, float*, int64_t, int64_t, int64_t, int64_t, float); \
  template void layer_norm_forward<OnCuda>(T*, const T*, const T*, const T*, T*, float*, int64_t, \
                                           int64_t, float);                                       \
  template void layer_norm_backward<OnCuda>(const T*, const T*, const T*, const float*, const T*, \
                                            T*, float*, float*, int64_t, int64_t);
LOCKSTEP_INSTANTIATE(float)
LOCKSTEP_INSTANTIATE(Bf16)

}  // namespace lockstep::core
