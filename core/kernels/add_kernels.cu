#include "core/kernels/add_kernels.h"

#include "core/kernels/cuda_math.cuh"

namespace lockstep::core {

using namespace cuda;

namespace {

// A block has kTokenThreads runs of columns. It reads the places of kPlaces rows at a time, and of
// kAhead rows the elements before it adds the first of them.
constexpr int kTokenThreads = 64, kPlaces = 256, kAhead = 16;
// Where one of the arrays is of fp32.
constexpr int kSumRun = kRunOf<float>;

// Behind the run of equal ones in `sorted` that begins at `first`: steps double, then halve.
__device__ int64_t end_of_equal(const int64_t* sorted, int64_t first, int64_t rows) {
  const int64_t token = sorted[first];
  const auto has = [=](int64_t i) { return i < rows && sorted[i] == token; };
  int64_t last = first, step = 1;
  for (; has(last + step); step *= 2) last += step;
  for (step /= 2; step > 0; step /= 2)
    if (has(last + step)) last += step;
  return last + 1;
}

// Adds n rows (kAhead, where `Whole`), one after the other, to `total`; `dy`: the thread's columns
// of row 0, `rows`: where each row begins.
template <bool Whole, int N, typename T>
__device__ void add_in_order(Floats<N>& total, const T* dy, const int64_t* rows, int n) {
  Packed<T, N> ahead[kAhead];
  for (int k = 0; k < kAhead; ++k)
    if (Whole || k < n) ahead[k] = *reinterpret_cast<const Packed<T, N>*>(dy + rows[k]);
  for (int k = 0; k < kAhead; ++k)
    if (Whole || k < n)
      for (int c = 0; c < N; ++c) total.at[c] += load(ahead[k].at[c]);
}

// Sums some columns of the rows of one token, if the run of its rows in `sorted` begins at this
// block. 128 registers at most.
template <typename T, int N>
__global__ void __launch_bounds__(kTokenThreads, blocks_to_fill(kTokenThreads) / 4)
    add_token_rows_kernel(float* sum, const T* dy, const int64_t* sorted, const int64_t* order,
                          int64_t rows, int64_t dim) {
  const int64_t first = blockIdx.x, token = sorted[first];
  if (first > 0 && sorted[first - 1] == token) return;
  const int64_t end = end_of_equal(sorted, first, rows);
  const int64_t column = (static_cast<int64_t>(blockIdx.y) * kTokenThreads + threadIdx.x) * N;
  const bool has_columns = column < dim;
  float* const to = sum + token * dim + column;
  Floats<N> total{};
  if (has_columns) total = load_run<N>(to);
  __shared__ int64_t places[kPlaces];  // in dy
  for (int64_t at = first; at < end; at += kPlaces) {
    const int n = static_cast<int>(end - at < kPlaces ? end - at : kPlaces);
    if (at > first) __syncthreads();  // all have read the last places
    for (int i = static_cast<int>(threadIdx.x); i < n; i += kTokenThreads)
      places[i] = order[at + i] * dim;
    __syncthreads();
    if (!has_columns) continue;
    int i = 0;
    for (; i + kAhead <= n; i += kAhead) add_in_order<true>(total, dy + column, places + i, kAhead);
    if (i < n) add_in_order<false>(total, dy + column, places + i, n - i);
  }
  if (has_columns) store_run(to, total);
}

template <typename T, int N>
void add_token_rows(float* sum, const T* dy, const int64_t* sorted, const int64_t* order,
                    int64_t rows, int64_t dim) {
  const dim3 grid(static_cast<unsigned>(rows), blocks_for(dim, kTokenThreads * N));
  launch<add_token_rows_kernel<T, N>>(grid, kTokenThreads, sum, dy, sorted, order, rows, dim);
}

// The sum of kParts parts from the kFirst-th on: N elements side by side.
template <int N, int kFirst, int kParts, typename T>
__device__ Floats<N> balanced(const FoldTerms<T>& terms, int64_t i) {
  if constexpr (kParts == 1) {
    return load_run<N>(terms.part[kFirst] + i);
  } else {
    Floats<N> sum = balanced<N, kFirst, kParts / 2>(terms, i);
    const Floats<N> more = balanced<N, kFirst + kParts / 2, kParts / 2>(terms, i);
    for (int k = 0; k < N; ++k) sum.at[k] += more.at[k];
    return sum;
  }
}
template <int N, int kParts, typename T>
__device__ void fold_at(float* out, const FoldTerms<T>& terms, int64_t i) {
  Floats<N> total = balanced<N, 0, kParts>(terms, i);
  for (int s = terms.sums - 1; s >= 0; --s) {
    const Floats<N> sum = load_run<N>(terms.sum[s] + i);
    for (int k = 0; k < N; ++k) total.at[k] = sum.at[k] + total.at[k];
  }
  store_run(out + i, total);
}

// 40 registers at most, and 64 for the elements under way of four parts and eight.
template <int kParts, typename T>
__global__ void __launch_bounds__(kElementThreads, kParts < 4
                                                       ? blocks_of_40_registers(kElementThreads)
                                                       : blocks_to_fill(kElementThreads) / 2)
    fold_kernel(float* out, FoldTerms<T> terms, int64_t n, bool in_runs) {
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kSumRun;
  if (first >= n) return;
  const Run<kSumRun> run = run_from<kSumRun>(first, n, in_runs);
  if (run.whole) return fold_at<kSumRun, kParts>(out, terms, first);
  for (int k = 0; k < run.count; ++k) fold_at<1, kParts>(out, terms, first + k);
}

template <int kParts, typename T>
void fold_parts(float* out, const FoldTerms<T>& terms, int64_t n) {
  if (n == 0) return;
  bool in_runs = aligned<kSumRun>(out);
  for (int k = 0; k < kParts; ++k) in_runs &= aligned<kSumRun>(terms.part[k]);
  for (int s = 0; s < terms.sums; ++s) in_runs &= aligned<kSumRun>(terms.sum[s]);
  launch<fold_kernel<kParts, T>>(blocks_for(n, kElementThreads * kSumRun), kElementThreads, out,
                                 terms, n, in_runs);
}

}  // namespace

template <typename Place, typename T>
void fold(float* out, const FoldTerms<T>& terms, int64_t n) {
  switch (terms.parts) {
    case 1: return fold_parts<1>(out, terms, n);
    case 2: return fold_parts<2>(out, terms, n);
    case 4: return fold_parts<4>(out, terms, n);
    default: return fold_parts<8>(out, terms, n);
  }
}

template <>
void narrow<OnCuda>(Bf16* out, const float* in, int64_t n) {
  for_each_run<kSumRun>(n, aligned<kSumRun>(out, in), [=] __device__(Run<kSumRun> run) {
    each_of(
        run, [](float& to, float from) { to = from; }, out, in);
  });
}

template <typename T>
void add_rows_by_token(float* sum, const T* dy, const int64_t* sorted, const int64_t* order,
                       int64_t rows, int64_t dim) {
  if (rows == 0) return;
  if (dim % kSumRun == 0 && aligned<kSumRun>(sum, dy)) {
    add_token_rows<T, kSumRun>(sum, dy, sorted, order, rows, dim);
  } else {
    add_token_rows<T, 1>(sum, dy, sorted, order, rows, dim);
  }
}

template <typename Place, typename T>
void add_columns(float* sum, const T* dy, int64_t rows, int64_t columns, int64_t row_stride) {
  add_column_sums(sum, rows, columns,
                  [=] __device__(int64_t r, int64_t c) { return load(dy[r * row_stride + c]); });
}

#define LOCKSTEP_INSTANTIATE(T)                                                              \
  template void fold<OnCuda>(float*, const FoldTerms<T>&, int64_t);                          \
  template void add_rows_by_token(float*, const T*, const int64_t*, const int64_t*, int64_t, \
                                  int64_t);                                                  \
  template void add_columns<OnCuda>(float*, const T*, int64_t, int64_t, int64_t);
LOCKSTEP_INSTANTIATE(float)
LOCKSTEP_INSTANTIATE(Bf16)

}  // namespace lockstep::core
