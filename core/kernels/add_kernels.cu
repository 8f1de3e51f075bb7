#include "core/kernels/add_kernels.h"

#include "core/kernels/cuda_math.cuh"

namespace lockstep::core {

using namespace cuda;

namespace {

constexpr int kRowThreads = 256;

// Sums the rows of one token, if the run of its rows in `sorted` begins at this block.
template <typename T>
__global__ void __launch_bounds__(kRowThreads, blocks_to_fill(kRowThreads))
    add_token_rows_kernel(float* sum, const T* dy, const int64_t* sorted, const int64_t* order,
                          int64_t rows, int64_t dim) {
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

template <typename Place, typename T>
void add_to(float* sum, const T* part, int64_t n) {
  for_each(n, [=] __device__(int64_t i) { sum[i] += load(part[i]); });
}

template <>
void narrow<OnCuda>(Bf16* out, const float* in, int64_t n) {
  for_each(n, [=] __device__(int64_t i) { store(out[i], in[i]); });
}

template <typename T>
void add_rows_by_token(float* sum, const T* dy, const int64_t* sorted, const int64_t* order,
                       int64_t rows, int64_t dim) {
  if (rows == 0) return;
  launch<add_token_rows_kernel<T>>(static_cast<unsigned>(rows), kRowThreads, sum, dy, sorted, order,
                                   rows, dim);
}

template <typename Place, typename T>
void add_columns(float* sum, const T* dy, int64_t rows, int64_t columns, int64_t row_stride) {
  add_column_sums(sum, rows, columns,
                  [=] __device__(int64_t r, int64_t c) { return load(dy[r * row_stride + c]); });
}

#define LOCKSTEP_INSTANTIATE(T)                                                              \
  template void add_to<OnCuda>(float*, const T*, int64_t);                                   \
  template void add_rows_by_token(float*, const T*, const int64_t*, const int64_t*, int64_t, \
                                  int64_t);                                                  \
  template void add_columns<OnCuda>(float*, const T*, int64_t, int64_t, int64_t);
LOCKSTEP_INSTANTIATE(float)
LOCKSTEP_INSTANTIATE(Bf16)

}  // namespace lockstep::core
