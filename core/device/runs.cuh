// Launches whose threads take runs of elements side by side, which one access moves where they are
// aligned.
#pragma once

#include "core/device/launch.cuh"

namespace lockstep::core::cuda {

// `count` elements of an array, or of a row of one, from `first` on: N of them where `whole`, and
// then every array is aligned there for accesses to all N.
template <int N>
struct Run {
  int64_t first;
  int count;
  bool whole;
};

// Of elements T: as many as 16 bytes have.
template <typename T>
constexpr int kRunOf = 16 / static_cast<int>(sizeof(T));

// 40 registers at most, for the elements under way.
constexpr int blocks_of_40_registers(int threads) { return blocks_to_fill(threads) * 3 / 4; }

template <int N>
__device__ Run<N> run_from(int64_t first, int64_t end, bool aligned) {
  const bool all = first + N <= end;
  return {first, all ? N : static_cast<int>(end - first), all && aligned};
}

template <int N, typename F>
__global__ void __launch_bounds__(kElementThreads, blocks_of_40_registers(kElementThreads))
    for_each_run_kernel(int64_t n, bool aligned, F f) {
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * N;
  if (first < n) f(run_from<N>(first, n, aligned));
}

// f(Run<N>) for the runs of [0, n). `aligned`: the arrays' first elements are.
template <int N, typename F>
void for_each_run(int64_t n, bool aligned, F f) {
  if (n == 0) return;
  launch<for_each_run_kernel<N, F>>(blocks_for(n, kElementThreads * N), kElementThreads, n, aligned,
                                    f);
}

// A block has a part of a row: one short division a thread, none an element.
template <int N, typename F>
__global__ void __launch_bounds__(kColumnThreads, blocks_of_40_registers(kColumnThreads))
    for_each_run_of_rows_kernel(unsigned parts, int64_t columns, bool aligned, F f) {
  const unsigned row = blockIdx.x / parts, part = blockIdx.x - row * parts;
  const int64_t first = (static_cast<int64_t>(part) * blockDim.x + threadIdx.x) * N;
  if (first < columns) f(static_cast<int64_t>(row), run_from<N>(first, columns, aligned));
}

// f(row, Run<N>) for the runs of `rows` rows of `columns` elements, two rows never in one run.
// `aligned`: the first elements of all rows are.
template <int N, typename F>
void for_each_run_of_rows(int64_t rows, int64_t columns, bool aligned, F f) {
  if (rows == 0 || columns == 0) return;
  const unsigned parts = blocks_for(columns, kColumnThreads * N);
  launch<for_each_run_of_rows_kernel<N, F>>(static_cast<unsigned>(rows) * parts, kColumnThreads,
                                            parts, columns, aligned, f);
}

}  // namespace lockstep::core::cuda
