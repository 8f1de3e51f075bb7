// What the kernels share: one thread an element, sums in a fixed order, no atomics. The order of a
// sum depends on its shape alone: never on the device or on what else runs. Where the compiler is
// not CUDA's, these are host code: tests/cuda_host/include has the other cuda_runtime_api.h.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <type_traits>

#include "core/device/runtime.h"

namespace lockstep::core::cuda {

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffu;

inline unsigned blocks_for(int64_t n, int64_t per_block) {
  return static_cast<unsigned>((n + per_block - 1) / per_block);
}

// Every kernel starts here. Requires: its __launch_bounds__ are at least `threads`.
template <auto Kernel, typename... Arguments>
void launch(dim3 grid, int threads, Arguments... arguments) {
#ifdef __CUDACC__
  Kernel<<<grid, threads, 0, current_stream()>>>(arguments...);
  check_launch();
#else
  cuda_host::launch<Kernel>(grid, threads, arguments...);
#endif
}

// The blocks that fill a multiprocessor of 8.0 or 9.0: 2,048 threads, 32 blocks. As a kernel's
// second launch bound it keeps registers at 32 a thread, or at 64 in blocks of one warp.
constexpr int blocks_to_fill(int threads) { return threads < 64 ? 32 : 2048 / threads; }

constexpr int kElementThreads = 256, kColumnThreads = 128;

template <typename F>
__global__ void __launch_bounds__(kElementThreads, blocks_to_fill(kElementThreads))
    for_each_kernel(int64_t n, F f) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) f(i);
}

// f(i) for i in [0, n), each by a thread of its own.
template <typename F>
void for_each(int64_t n, F f) {
  if (n == 0) return;
  launch<for_each_kernel<F>>(blocks_for(n, kElementThreads), kElementThreads, n, f);
}

struct Add {
  __device__ float operator()(float a, float b) const { return a + b; }
};
struct Larger {
  __device__ float operator()(float a, float b) const { return a > b ? a : b; }
};

// What the lane `own lane ^ mask` of a warp gave.
__device__ inline float of_lane(float value, int mask) {
  return __shfl_xor_sync(kAllLanes, value, mask);
}
__device__ inline uint64_t of_lane(uint64_t value, int mask) {
  return __shfl_xor_sync(kAllLanes, value, mask);
}

// combine over term(i), i in [0, n), by all `Threads` threads of a block; every one gets it. Thread
// t combines t, t + Threads, … in order; then a butterfly in each warp, and the warps in order.
// `combine` is commutative to the bit, so that a butterfly gives every lane the same.
// Each F has an array `of_warp` of its own: calls with several lambdas need no barrier between, and
// one repeated in a loop does. When it returns, several warps have met; one has not, for a
// shuffle orders no accesses to memory.
template <int Threads, typename Value, typename Combine, typename F>
__device__ Value over_block(int64_t n, Value start, Combine combine, F term) {
  Value mine = start;
  for (int64_t i = threadIdx.x; i < n; i += Threads) mine = combine(mine, term(i));
  for (int lane = kWarp / 2; lane > 0; lane /= 2) mine = combine(mine, of_lane(mine, lane));
  if constexpr (Threads == kWarp) return mine;
  __shared__ Value of_warp[Threads / kWarp];
  if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = mine;
  __syncthreads();
  Value all = of_warp[0];
  for (int w = 1; w < Threads / kWarp; ++w) all = combine(all, of_warp[w]);
  return all;
}

template <int Threads, typename F>
__device__ float block_sum(int64_t n, F term) {
  return over_block<Threads>(n, 0.0f, Add(), term);
}

// Calls launch(threads a row) for rows of `dim`: a compile-time number that depends on dim alone.
template <int Widest = 1024, typename F>
void by_width(int64_t dim, F launch) {
  if (dim <= 256) {
    launch(std::integral_constant<int, kWarp>());
  } else if (dim <= 16384) {
    launch(std::integral_constant<int, 256>());
  } else {
    launch(std::integral_constant<int, Widest>());
  }
}

// The sum of term(i), i in [first, end), in order. Terms are read sixteen at a time, ahead of their
// additions.
template <typename F>
__device__ float sum_in_order(int64_t first, int64_t end, F term) {
  constexpr int kAhead = 16;
  float sum = 0.0f;
  int64_t i = first;
  for (; i + kAhead <= end; i += kAhead) {
    float terms[kAhead];
    for (int k = 0; k < kAhead; ++k) terms[k] = term(i + k);
    for (int k = 0; k < kAhead; ++k) sum += terms[k];
  }
  for (; i < end; ++i) sum += term(i);
  return sum;
}

// 64 registers at most, for the terms under way.
template <typename F>
__global__ void __launch_bounds__(kColumnThreads, blocks_to_fill(kColumnThreads) / 2)
    column_runs_kernel(float* runs_out, int64_t rows, int64_t columns, int64_t run_rows, F term) {
  const int64_t c = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (c >= columns) return;
  const int64_t first = blockIdx.y * run_rows;
  const int64_t end = first + run_rows < rows ? first + run_rows : rows;
  runs_out[blockIdx.y * columns + c] =
      sum_in_order(first, end, [=](int64_t r) { return term(r, c); });
}

// out[c] += the sum over r in [0, rows) of term(r, c), for c in [0, columns): runs of rows in row
// order, then the runs in order.
template <typename F>
void add_column_sums(float* out, int64_t rows, int64_t columns, F term) {
  constexpr int64_t kRunRows = 64, kMaxRuns = 256;
  if (rows == 0 || columns == 0) return;
  const int64_t run_rows = rows > kRunRows * kMaxRuns ? (rows + kMaxRuns - 1) / kMaxRuns : kRunRows;
  const int64_t runs = (rows + run_rows - 1) / run_rows;
  const Scratch scratch(static_cast<size_t>(runs * columns) * sizeof(float));
  float* sums = scratch.as<float>();
  const dim3 grid(blocks_for(columns, kColumnThreads), static_cast<unsigned>(runs));
  launch<column_runs_kernel<F>>(grid, kColumnThreads, sums, rows, columns, run_rows, term);
  for_each(columns, [=] __device__(int64_t c) {
    out[c] += sum_in_order(0, runs, [=](int64_t run) { return sums[run * columns + c]; });
  });
}

}  // namespace lockstep::core::cuda
