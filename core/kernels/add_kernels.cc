#include "core/kernels/add_kernels.h"

#include <algorithm>

#include "core/kernels/kernel_math.h"

namespace lockstep::core {

namespace {

LOCKSTEP_INLINE float wide(float x) { return x; }
LOCKSTEP_INLINE float wide(Bf16 x) { return bf16_to_float(x.bits); }

template <int kParts, typename T>
LOCKSTEP_INLINE float balanced(const T* const* parts, int64_t i) {
  if constexpr (kParts == 1) return wide(parts[0][i]);
  if constexpr (kParts > 1)
    return balanced<kParts / 2>(parts, i) + balanced<kParts / 2>(parts + kParts / 2, i);
}
// f(i, the balanced sum of the i-th elements) for n elements from `first` on.
template <int kParts, typename T, typename F>
LOCKSTEP_INLINE void each_balanced(const T* const* parts, int64_t first, int64_t n, F&& f) {
  const T* from[kParts];
  for (int k = 0; k < kParts; ++k) from[k] = parts[k] + first;
  for (int64_t i = 0; i < n; ++i) f(i, balanced<kParts>(from, i));
}

// What several sums are added to stays in the cache meanwhile.
template <int kParts, typename T>
LOCKSTEP_INLINE void fold_parts(float* out, const FoldTerms<T>& terms, int64_t n) {
  if (terms.sums == 0)
    return each_balanced<kParts>(terms.part, 0, n, [out](int64_t i, float x) { out[i] = x; });
  if (terms.sums == 1)
    return each_balanced<kParts>(terms.part, 0, n, [out](int64_t i, float x) { out[i] += x; });
  float run[kRun];
  for (int64_t first = 0; first < n; first += kRun) {
    const int64_t count = std::min(kRun, n - first);
    int s = terms.sums - 1;
    const float* sum = terms.sum[s] + first;
    each_balanced<kParts>(terms.part, first, count,
                          [&run, sum](int64_t i, float x) { run[i] = sum[i] + x; });
    while (--s > 0) {
      sum = terms.sum[s] + first;
      for (int64_t i = 0; i < count; ++i) run[i] += sum[i];
    }
    float* const to = out + first;
    for (int64_t i = 0; i < count; ++i) to[i] += run[i];
  }
}

LOCKSTEP_KERNEL fold_by_parts(float* out, const FoldTerms<T>& terms, int64_t n) {
  switch (terms.parts) {
    case 1: return fold_parts<1>(out, terms, n);
    case 2: return fold_parts<2>(out, terms, n);
    case 4: return fold_parts<4>(out, terms, n);
    default: return fold_parts<8>(out, terms, n);
  }
}

}  // namespace

LOCKSTEP_CLONED fold<OnCpu>(float* out, const FoldTerms<float>& terms, int64_t n) {
  fold_by_parts(out, terms, n);
}

LOCKSTEP_CLONED fold<OnCpu>(float* out, const FoldTerms<Bf16>& terms, int64_t n) {
  fold_by_parts(out, terms, n);
}

LOCKSTEP_CLONED add_to<OnCpu>(float* __restrict sum, const float* __restrict part, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sum[i] += part[i];
}

LOCKSTEP_CLONED add_to<OnCpu>(float* __restrict sum, const Bf16* __restrict part, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sum[i] += bf16_to_float(part[i].bits);
}

LOCKSTEP_CLONED narrow<OnCpu>(Bf16* __restrict out, const float* __restrict in, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i].bits = float_to_bf16(in[i]);
}

#define LOCKSTEP_INSTANTIATE(T)                                                          \
  template <>                                                                            \
  void add_columns<OnCpu>(float* sum, const T* dy, int64_t rows, int64_t columns,        \
                          int64_t row_stride) {                                          \
    for (int64_t r = 0; r < rows; ++r) add_to<OnCpu>(sum, dy + r * row_stride, columns); \
  }
LOCKSTEP_INSTANTIATE(float)
LOCKSTEP_INSTANTIATE(Bf16)

}  // namespace lockstep::core
