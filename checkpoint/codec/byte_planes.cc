#include "checkpoint/codec/byte_planes.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

#include "base/check.h"

namespace lockstep::checkpoint {
namespace {

using To = std::array<std::byte*, kPlanes>;
using From = std::array<const std::byte*, kPlanes>;

// 16 words from `in` to byte `at` of each plane; and back.
#if defined(__x86_64__)
__m128i load_16(const std::byte* from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}
void store_16(std::byte* to, __m128i value) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), value);
}
void split_16(const std::byte* in, const To& planes, size_t at) {
  const __m128i low = _mm_set1_epi32(0xff);
  const __m128i w[4] = {load_16(in), load_16(in + 16), load_16(in + 32), load_16(in + 48)};
  for (int plane = 0; plane < 4; ++plane) {
    const auto bytes = [&](int i) { return _mm_and_si128(_mm_srli_epi32(w[i], 8 * plane), low); };
    const __m128i front = _mm_packs_epi32(bytes(0), bytes(1));
    const __m128i back = _mm_packs_epi32(bytes(2), bytes(3));
    store_16(planes[static_cast<size_t>(plane)] + at, _mm_packus_epi16(front, back));
  }
}
void join_16(const From& planes, size_t at, std::byte* out) {
  const __m128i p0 = load_16(planes[0] + at), p1 = load_16(planes[1] + at);
  const __m128i p2 = load_16(planes[2] + at), p3 = load_16(planes[3] + at);
  const __m128i low_front = _mm_unpacklo_epi8(p0, p1), low_back = _mm_unpackhi_epi8(p0, p1);
  const __m128i high_front = _mm_unpacklo_epi8(p2, p3), high_back = _mm_unpackhi_epi8(p2, p3);
  store_16(out, _mm_unpacklo_epi16(low_front, high_front));
  store_16(out + 16, _mm_unpackhi_epi16(low_front, high_front));
  store_16(out + 32, _mm_unpacklo_epi16(low_back, high_back));
  store_16(out + 48, _mm_unpackhi_epi16(low_back, high_back));
}

#define LOCKSTEP_AVX2 __attribute__((target("avx2")))

// In each half of a register, the 4 x 4 matrix of bytes transposed: its own inverse.
LOCKSTEP_AVX2 __attribute__((always_inline)) inline __m256i transpose_bytes(__m256i words) {
  const __m128i order = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return _mm256_shuffle_epi8(words, _mm256_broadcastsi128_si256(order));
}

// In each half, row i of `out` is column i of the 4 x 4 matrix of 4-byte words in `in`.
LOCKSTEP_AVX2 __attribute__((always_inline)) inline void transpose_words(const __m256i in[4],
                                                                         __m256i out[4]) {
  const __m256i low01 = _mm256_unpacklo_epi32(in[0], in[1]);
  const __m256i low23 = _mm256_unpacklo_epi32(in[2], in[3]);
  const __m256i high01 = _mm256_unpackhi_epi32(in[0], in[1]);
  const __m256i high23 = _mm256_unpackhi_epi32(in[2], in[3]);
  out[0] = _mm256_unpacklo_epi64(low01, low23);
  out[1] = _mm256_unpackhi_epi64(low01, low23);
  out[2] = _mm256_unpacklo_epi64(high01, high23);
  out[3] = _mm256_unpackhi_epi64(high01, high23);
}

// Both return how many words they did, a multiple of 32.
LOCKSTEP_AVX2 size_t split_avx2(const std::byte* in, size_t words, const To& planes) {
  const __m256i interleave = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  size_t i = 0;
  for (; i + 32 <= words; i += 32) {
    __m256i rows[4], columns[4];
    for (size_t k = 0; k < 4; ++k)
      rows[k] = transpose_bytes(
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + 4 * i + 32 * k)));
    transpose_words(rows, columns);
    for (size_t k = 0; k < 4; ++k)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(planes[k] + i),
                          _mm256_permutevar8x32_epi32(columns[k], interleave));
  }
  return i;
}
LOCKSTEP_AVX2 size_t join_avx2(const From& planes, size_t words, std::byte* out) {
  const __m256i separate = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
  size_t i = 0;
  for (; i + 32 <= words; i += 32) {
    __m256i columns[4], rows[4];
    for (size_t k = 0; k < 4; ++k)
      columns[k] = _mm256_permutevar8x32_epi32(
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(planes[k] + i)), separate);
    transpose_words(columns, rows);
    for (size_t k = 0; k < 4; ++k)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 4 * i + 32 * k),
                          transpose_bytes(rows[k]));
  }
  return i;
}
#elif defined(__ARM_NEON)
void split_16(const std::byte* in, const To& planes, size_t at) {
  const uint8x16x4_t bytes = vld4q_u8(reinterpret_cast<const uint8_t*>(in));
  for (size_t plane = 0; plane < kPlanes; ++plane)
    vst1q_u8(reinterpret_cast<uint8_t*>(planes[plane] + at), bytes.val[plane]);
}
void join_16(const From& planes, size_t at, std::byte* out) {
  uint8x16x4_t bytes;
  for (size_t plane = 0; plane < kPlanes; ++plane)
    bytes.val[plane] = vld1q_u8(reinterpret_cast<const uint8_t*>(planes[plane] + at));
  vst4q_u8(reinterpret_cast<uint8_t*>(out), bytes);
}
#else
void split_16(const std::byte* in, const To& planes, size_t at) {
  for (size_t i = 0; i < 64; ++i) planes[i % 4][at + i / 4] = in[i];
}
void join_16(const From& planes, size_t at, std::byte* out) {
  for (size_t i = 0; i < 64; ++i) out[i] = planes[i % 4][at + i / 4];
}
#endif

#if !defined(__x86_64__)
size_t split_avx2(const std::byte*, size_t, const To&) { return 0; }
size_t join_avx2(const From&, size_t, std::byte*) { return 0; }
#endif

// The planes of `bytes`, which holds one after another.
template <typename Byte>
std::array<Byte*, kPlanes> planes_in(std::span<Byte> bytes) {
  const size_t words = bytes.size() / kPlanes;
  Byte* const first = bytes.data();
  return {first, first + words, first + 2 * words, first + 3 * words};
}

}  // namespace

void split_planes(const std::byte* in, size_t words, const To& planes, Isa isa) {
  size_t i = isa >= Isa::kAvx2 ? split_avx2(in, words, planes) : 0;
  for (; i + 16 <= words; i += 16) split_16(in + 4 * i, planes, i);
  for (; i < words; ++i)
    for (size_t plane = 0; plane < kPlanes; ++plane) planes[plane][i] = in[4 * i + plane];
}

void join_planes(const From& planes, size_t words, std::byte* out, Isa isa) {
  size_t i = isa >= Isa::kAvx2 ? join_avx2(planes, words, out) : 0;
  for (; i + 16 <= words; i += 16) join_16(planes, i, out + 4 * i);
  for (; i < words; ++i)
    for (size_t plane = 0; plane < kPlanes; ++plane) out[4 * i + plane] = planes[plane][i];
}

void shuffle_words(std::span<const std::byte> in, std::span<std::byte> out) {
  LOCKSTEP_CHECK(in.size() == out.size() && in.size() % 4 == 0, in.size(), " ", out.size());
  split_planes(in.data(), in.size() / 4, planes_in(out));
}

void unshuffle_words(std::span<const std::byte> in, std::span<std::byte> out) {
  LOCKSTEP_CHECK(in.size() == out.size() && in.size() % 4 == 0, in.size(), " ", out.size());
  join_planes(planes_in(in), in.size() / 4, out.data());
}

}  // namespace lockstep::checkpoint
