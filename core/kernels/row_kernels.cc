// A tile is R rows by C columns of the result, whose sums stay in registers. Where there are few
// rows the weights' memory is what takes time, and C is 1: one stream through it is the fastest.
// Where there are many, C columns share what is loaded of x.
// Highway includes this file once for each instruction set.
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/row_kernels.cc"
#include "core/kernels/row_kernels.h"

#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "core/kernels/kernel_math.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::core {
namespace {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Tag = hn::CappedTag<float, static_cast<size_t>(kLanes)>;
using Vector = hn::Vec<Tag>;
constexpr Tag kTag;
constexpr int kWidth = static_cast<int>(hn::MaxLanes(kTag));
constexpr int kVectors = static_cast<int>(kLanes) / kWidth;  // that make up the lanes

HWY_INLINE Vector load(const float* from) { return hn::LoadU(kTag, from); }
HWY_INLINE Vector load(const Bf16* from) {
  const hn::Rebind<uint16_t, Tag> half;
  const hn::Rebind<uint32_t, Tag> word;
  const auto bits = hn::LoadU(half, reinterpret_cast<const uint16_t*>(from));
  return hn::BitCast(kTag, hn::ShiftLeft<16>(hn::PromoteTo(word, bits)));
}
HWY_INLINE float widened_one(float v) { return v; }
HWY_INLINE float widened_one(Bf16 v) { return bf16_to_float(v.bits); }
HWY_INLINE void store_one(float v, float* to) { *to = v; }
HWY_INLINE void store_one(float v, Bf16* to) {
  to->bits = static_cast<uint16_t>(bf16_word(v) >> 16);
}

HWY_INLINE void clear(Vector* sums) {
  for (int v = 0; v < kVectors; ++v) sums[v] = hn::Zero(kTag);
}
// The lanes of a sum, folded as fold_lanes does.
HWY_INLINE float folded(const Vector* sums) {
  float lanes[kLanes];
  for (int v = 0; v < kVectors; ++v) hn::StoreU(sums[v], kTag, lanes + v * kWidth);
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int k = 0; k < half; ++k) lanes[k] += lanes[k + half];
  return lanes[0];
}
// sums[r][c] += x_r[0 …] w_c[0 …] for as many elements as there are lanes.
template <int R, int C, typename W>
HWY_INLINE void add_lanes(const float* x, int64_t x_stride, const W* w, int64_t w_stride,
                          Vector (*sums)[C][kVectors]) {
  for (int v = 0; v < kVectors; ++v) {
    Vector xs[R];
    for (int r = 0; r < R; ++r) xs[r] = load(x + r * x_stride + v * kWidth);
    for (int c = 0; c < C; ++c) {
      const Vector wide = load(w + c * w_stride + v * kWidth);
      for (int r = 0; r < R; ++r) sums[r][c][v] = hn::Add(sums[r][c][v], hn::Mul(xs[r], wide));
    }
  }
}

template <int R, int C, typename W, typename T>
HWY_INLINE void tile(const float* x, int64_t inner, const W* w, T* out, int64_t width) {
  Vector sums[R][C][kVectors];
  for (int r = 0; r < R; ++r)
    for (int c = 0; c < C; ++c) clear(sums[r][c]);
  int64_t i = 0;
  for (; i + kLanes <= inner; i += kLanes) {
    if (C > 1)
      for (int c = 0; c < C; ++c) __builtin_prefetch(w + (c + C) * inner + i);
    add_lanes<R, C>(x + i, inner, w + i, inner, sums);
  }
  if (const int64_t rest = inner - i; rest > 0) {  // as if zeros followed
    float x_rest[R][kLanes] = {}, w_rest[C][kLanes] = {};
    for (int r = 0; r < R; ++r)
      for (int64_t k = 0; k < rest; ++k) x_rest[r][k] = x[r * inner + i + k];
    for (int c = 0; c < C; ++c)
      for (int64_t k = 0; k < rest; ++k) w_rest[c][k] = widened_one(w[c * inner + i + k]);
    add_lanes<R, C>(x_rest[0], kLanes, w_rest[0], kLanes, sums);
  }
  for (int r = 0; r < R; ++r)
    for (int c = 0; c < C; ++c) store_one(folded(sums[r][c]), out + r * width + c);
}

// C columns of all rows, R at a time.
template <int R, int C, typename W, typename T>
HWY_INLINE void columns_of_rows(const RowFactor& x, const W* w, T* out, int64_t width) {
  int64_t r = 0;
  for (; r + R <= x.rows; r += R) tile<R, C>(x.x + r * x.inner, x.inner, w, out + r * width, width);
  for (; r < x.rows; ++r) tile<1, C>(x.x + r * x.inner, x.inner, w, out + r * width, width);
}

constexpr int64_t kFewRows = 16;

template <typename W, typename T>
HWY_INLINE void multiply(const RowFactor& x, const W* w, const ColumnRange& columns, T* out) {
  constexpr int kTogether = 4;
  int64_t c = columns.begin;
  if (x.rows > kFewRows)
    for (; c + kTogether <= columns.end; c += kTogether)
      columns_of_rows<4, kTogether>(x, w + c * x.inner, out + c, columns.width);
  for (; c < columns.end; ++c) columns_of_rows<4, 1>(x, w + c * x.inner, out + c, columns.width);
}

// R rows of kLanes * S columns, each sum in its own lane.
template <int R, int S, typename W, typename T>
HWY_INLINE void strip(const float* x, int64_t inner, const W* w, T* out, int64_t width) {
  constexpr int kParts = S * kVectors;
  Vector sums[R][kParts];
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < kParts; ++v) sums[r][v] = hn::Zero(kTag);
  for (int64_t i = 0; i < inner; ++i, w += width)
    for (int v = 0; v < kParts; ++v) {
      const Vector wide = load(w + v * kWidth);
      for (int r = 0; r < R; ++r)
        sums[r][v] = hn::Add(sums[r][v], hn::Mul(hn::Set(kTag, x[r * inner + i]), wide));
    }
  for (int r = 0; r < R; ++r) {
    float lanes[S * kLanes];
    for (int v = 0; v < kParts; ++v) hn::StoreU(sums[r][v], kTag, lanes + v * kWidth);
    for (int64_t k = 0; k < S * kLanes; ++k) store_one(lanes[k], out + r * width + k);
  }
}

template <int R, typename W, typename T>
HWY_INLINE void rows_of_strips(const float* x, int64_t inner, const W* w,
                               const ColumnRange& columns, T* out) {
  constexpr int kMost = 4;
  int64_t c = columns.begin;
  for (; c + kMost * kLanes <= columns.end; c += kMost * kLanes)
    strip<R, kMost>(x, inner, w + c, out + c, columns.width);
  for (; c + kLanes <= columns.end; c += kLanes)
    strip<R, 1>(x, inner, w + c, out + c, columns.width);
  for (; c < columns.end; ++c)
    for (int r = 0; r < R; ++r) {
      float sum = 0;
      for (int64_t i = 0; i < inner; ++i)
        sum += x[r * inner + i] * widened_one(w[i * columns.width + c]);
      store_one(sum, out + r * columns.width + c);
    }
}

template <typename W, typename T>
HWY_INLINE void multiply_strips(const RowFactor& x, const W* w, const ColumnRange& columns,
                                T* out) {
  constexpr int kRows = 4;
  int64_t r = 0;
  for (; r + kRows <= x.rows; r += kRows)
    rows_of_strips<kRows>(x.x + r * x.inner, x.inner, w, columns, out + r * columns.width);
  for (; r < x.rows; ++r)
    rows_of_strips<1>(x.x + r * x.inner, x.inner, w, columns, out + r * columns.width);
}

void by_rows_fp32(const RowFactor& x, const float* w, const ColumnRange& c, float* out) {
  multiply(x, w, c, out);
}
void by_rows_wide(const RowFactor& x, const Bf16* w, const ColumnRange& c, float* out) {
  multiply(x, w, c, out);
}
void by_rows_bf16(const RowFactor& x, const Bf16* w, const ColumnRange& c, Bf16* out) {
  multiply(x, w, c, out);
}
void by_columns_fp32(const RowFactor& x, const float* w, const ColumnRange& c, float* out) {
  multiply_strips(x, w, c, out);
}
void by_columns_bf16(const RowFactor& x, const Bf16* w, const ColumnRange& c, Bf16* out) {
  multiply_strips(x, w, c, out);
}

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace lockstep::core
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::core {
namespace {

HWY_EXPORT(by_rows_fp32);
HWY_EXPORT(by_rows_wide);
HWY_EXPORT(by_rows_bf16);
HWY_EXPORT(by_columns_fp32);
HWY_EXPORT(by_columns_bf16);

}  // namespace

void rows_by_rows(const RowFactor& x, const float* w, const ColumnRange& c, float* out) {
  HWY_DYNAMIC_DISPATCH(by_rows_fp32)(x, w, c, out);
}
void rows_by_rows(const RowFactor& x, const Bf16* w, const ColumnRange& c, float* out) {
  HWY_DYNAMIC_DISPATCH(by_rows_wide)(x, w, c, out);
}
void rows_by_rows(const RowFactor& x, const Bf16* w, const ColumnRange& c, Bf16* out) {
  HWY_DYNAMIC_DISPATCH(by_rows_bf16)(x, w, c, out);
}
void rows_by_columns(const RowFactor& x, const float* w, const ColumnRange& c, float* out) {
  HWY_DYNAMIC_DISPATCH(by_columns_fp32)(x, w, c, out);
}
void rows_by_columns(const RowFactor& x, const Bf16* w, const ColumnRange& c, Bf16* out) {
  HWY_DYNAMIC_DISPATCH(by_columns_bf16)(x, w, c, out);
}

}  // namespace lockstep::core
#endif
