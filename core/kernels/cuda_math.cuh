// Elements as the model's CUDA kernels read and write them: one by one, or in runs by accesses of
// 16 bytes.
#pragma once

#include "core/device/runs.cuh"
#include "core/kernels/kernel_types.h"

namespace lockstep::core::cuda {

__device__ inline float load(float value) { return value; }
__device__ inline float load(Bf16 value) { return bf16_to_float(value.bits); }
__device__ inline void store(float& to, float value) { to = value; }
__device__ inline void store(Bf16& to, float value) { to.bits = float_to_bf16(value); }

// N elements side by side, which one access moves if they are 16 bytes or fewer.
template <typename T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Packed {
  T at[N];
};
template <int N>
struct Floats {
  float at[N];
};

template <typename T, int N>
__device__ Floats<N> widened(const Packed<T, N>& packed) {
  Floats<N> values;
  for (int k = 0; k < N; ++k) values.at[k] = load(packed.at[k]);
  return values;
}

// Requires: `from` and `to` are aligned as a Packed<T, N>.
template <int N, typename T>
__device__ Floats<N> load_run(const T* from) {
  const Packed<T, N> packed = *reinterpret_cast<const Packed<T, N>*>(from);
  return widened(packed);
}

// values.at[k], rounded, for all k.
template <typename T, int N>
__device__ Packed<T, N> packed_run(const Floats<N>& values) {
  Packed<T, N> packed;
#ifdef __CUDA_ARCH__
  if constexpr (std::is_same_v<T, Bf16> && N % 2 == 0) {
    // One instruction rounds two, as float_to_bf16 does but for the bits of NaN.
    bool numbers = true;
    for (int k = 0; k < N; ++k) numbers &= values.at[k] == values.at[k];
    if (__builtin_expect(numbers, 1)) {
      Packed<uint32_t, N / 2> pairs;
      for (int k = 0; k < N; k += 2)
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;"
            : "=r"(pairs.at[k / 2])
            : "f"(values.at[k + 1]), "f"(values.at[k]));
      return __builtin_bit_cast(decltype(packed), pairs);
    }
  }
#endif
  for (int k = 0; k < N; ++k) store(packed.at[k], values.at[k]);
  return packed;
}
template <int N, typename T>
__device__ void store_run(T* to, const Floats<N>& values) {
  *reinterpret_cast<Packed<T, N>*>(to) = packed_run<T>(values);
}

template <int N, typename... T>
bool aligned(const T*... arrays) {
  return ((reinterpret_cast<uintptr_t>(arrays) % alignof(Packed<T, N>) == 0) && ...);
}

template <typename T, int N>
__device__ void store_back(T* to, const Floats<N>& values) {
  if constexpr (!std::is_const_v<T>) store_run(to, values);
}

// f(x, y, …) N times, of N elements side by side from each array; arrays that are not const take
// what f has made of theirs. Of an array that f does not read, nothing is loaded: the compiler sees
// it. Requires: they are aligned for N elements an access.
template <int N, typename F, typename... Arrays>
__device__ void each(const F& f, Arrays... arrays) {
  [&](auto... values) {
    for (int k = 0; k < N; ++k) f(values.at[k]...);
    (store_back(arrays, values), ...);
  }(load_run<N>(arrays)...);
}
template <int N, typename F, typename... Arrays>
__device__ void each_of(const Run<N>& run, const F& f, Arrays... arrays) {
  if (run.whole) return each<N>(f, (arrays + run.first)...);
  for (int k = 0; k < run.count; ++k) each<1>(f, (arrays + (run.first + k))...);
}

// Rows of `size` elements that threads take in runs of kRowRun, two rows never in one run. A run is
// moved by 16 bytes an access where `in_runs`: where all rows are aligned and whole numbers of runs
// long. Which elements are a run depends on the row's size alone.
constexpr int kRowRun = 8;
struct RowRuns {
  int size;
  bool in_runs;

  // Of each row (null: zeros) the run from element `i` on; zeros behind a row's end. All accesses
  // are under way before the first has ended.
  template <typename T, int N>
  __device__ void load(int i, const T* const (&rows)[N], Packed<T, kRowRun> (&out)[N]) const {
    if (in_runs && i < size) {
      for (int n = 0; n < N; ++n)
        out[n] = rows[n] == nullptr ? Packed<T, kRowRun>{}
                                    : *reinterpret_cast<const Packed<T, kRowRun>*>(rows[n] + i);
    } else {
      for (int n = 0; n < N; ++n)
        for (int k = 0; k < kRowRun; ++k)
          out[n].at[k] = rows[n] == nullptr || i + k >= size ? T{} : rows[n][i + k];
    }
  }
  // Of one row; `missing` behind its end.
  template <typename T>
  __device__ Floats<kRowRun> load(int i, const T* row, float missing) const {
    Packed<T, kRowRun> run[1];
    load(i, {row}, run);
    Floats<kRowRun> values = widened(run[0]);
    if (i + kRowRun > size)
      for (int k = 0; k < kRowRun; ++k)
        if (i + k >= size) values.at[k] = missing;
    return values;
  }
  template <typename T>
  __device__ void store(T* row, int i, const Floats<kRowRun>& values) const {
    if (in_runs && i < size) return store_run(row + i, values);
    for (int k = 0; k < kRowRun; ++k)
      if (i + k < size) cuda::store(row[i + k], values.at[k]);
  }
};
// `arrays`: of rows that lie `stride` elements apart, or vectors of `size` in them.
template <typename... T>
RowRuns row_runs(int64_t size, int64_t stride, const T*... arrays) {
  return {static_cast<int>(size),
          size % kRowRun == 0 && stride % kRowRun == 0 && aligned<kRowRun>(arrays...)};
}

}  // namespace lockstep::core::cuda
