// fingerprint and copy_with_fingerprint of state.h: the formula of docs/FORMAT.md, many words at a
// time. Every form adds up the same products modulo 2^64, in another order.
#include <algorithm>
#include <cstring>
#include <numeric>

#if defined(__x86_64__)
#pragma GCC diagnostic ignored "-Wuninitialized"  // gcc 12 sees its own _mm512_undefined_epi32
#include <immintrin.h>
#endif

#include "base/check.h"
#include "checkpoint/record/state.h"

namespace lockstep::checkpoint {
namespace {

constexpr uint64_t kGolden = 0x9e3779b97f4a7c15ULL;  // 2^64 / golden ratio: SplitMix64's increment
constexpr uint64_t kMix = 0xd6e8feb86659fd93ULL;
// A copy without streaming stores goes through a cache by this much, a multiple of 4.
constexpr size_t kBlockBytes = size_t{16} << 10;

// z = (index + 1) * kGolden of the first word.
struct Words {
  const std::byte* from;
  std::byte* to;  // nullptr where nothing is copied
  size_t count;
  uint64_t z;

  void skip(size_t words) {
    from += 4 * words;
    if (to != nullptr) to += 4 * words;
    count -= words;
    z += words * kGolden;
  }
};

uint64_t sum_portable(const Words& words) {
  uint64_t sum = 0;
  for (size_t i = 0; i < words.count; ++i) {
    uint32_t word;
    std::memcpy(&word, words.from + 4 * i, 4);
    const uint64_t z = words.z + i * kGolden, mixed = (z ^ (z >> 32)) * kMix;
    sum += word * ((mixed ^ (mixed >> 32)) | 1);  // an odd weight for each index
  }
  return sum;
}

uint64_t copy_portable(Words words) {
  uint64_t sum = 0;
  while (words.count > 0) {
    const size_t count = std::min(words.count, kBlockBytes / 4);
    std::memcpy(words.to, words.from, 4 * count);
    sum += sum_portable({words.from, nullptr, count, words.z});
    words.skip(count);
  }
  return sum;
}

#if defined(__x86_64__)
#define LOCKSTEP_AVX2 __attribute__((target("avx2")))
#define LOCKSTEP_AVX512 __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl")))
#define LOCKSTEP_INLINE __attribute__((always_inline)) inline

// a * b modulo 2^64 for the 64-bit lanes of a, from 32-bit products.
LOCKSTEP_AVX2 LOCKSTEP_INLINE __m256i times(__m256i a, __m256i b_low, __m256i b_high) {
  const __m256i cross = _mm256_add_epi64(_mm256_mul_epu32(_mm256_srli_epi64(a, 32), b_low),
                                         _mm256_mul_epu32(a, b_high));
  return _mm256_add_epi64(_mm256_mul_epu32(a, b_low), _mm256_slli_epi64(cross, 32));
}

// 4 words in 64-bit lanes, times their weights.
LOCKSTEP_AVX2 LOCKSTEP_INLINE __m256i weighted(__m256i words, __m256i z) {
  const __m256i low = _mm256_set1_epi64x(kMix & 0xffffffff), high = _mm256_set1_epi64x(kMix >> 32);
  const __m256i mixed = times(_mm256_xor_si256(z, _mm256_srli_epi64(z, 32)), low, high);
  const __m256i top = _mm256_srli_epi64(mixed, 32);
  const __m256i weight = _mm256_or_si256(_mm256_xor_si256(mixed, top), _mm256_set1_epi64x(1));
  return times(words, weight, top);
}

LOCKSTEP_AVX2 LOCKSTEP_INLINE __m256i lanes_of(uint64_t z) {
  return _mm256_add_epi64(
      _mm256_set1_epi64x(static_cast<long long>(z)),
      _mm256_set_epi64x(static_cast<long long>(3 * kGolden), static_cast<long long>(2 * kGolden),
                        static_cast<long long>(kGolden), 0));
}

template <bool kCopy>
LOCKSTEP_AVX2 uint64_t sum_avx2(Words& words) {
  const __m256i step = _mm256_set1_epi64x(static_cast<long long>(4 * kGolden));
  __m256i z = lanes_of(words.z), sum = _mm256_setzero_si256();
  const size_t done = words.count / 8 * 8;
  for (size_t i = 0; i < done; i += 8) {
    const auto eight = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(words.from + 4 * i));
    if constexpr (kCopy) _mm256_stream_si256(reinterpret_cast<__m256i*>(words.to + 4 * i), eight);
    sum = _mm256_add_epi64(sum, weighted(_mm256_cvtepu32_epi64(_mm256_castsi256_si128(eight)), z));
    z = _mm256_add_epi64(z, step);
    sum = _mm256_add_epi64(sum,
                           weighted(_mm256_cvtepu32_epi64(_mm256_extracti128_si256(eight, 1)), z));
    z = _mm256_add_epi64(z, step);
  }
  words.skip(done);
  alignas(32) uint64_t lane[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lane), sum);
  return lane[0] + lane[1] + lane[2] + lane[3];
}

LOCKSTEP_AVX512 LOCKSTEP_INLINE __m512i weighted(__m512i words, __m512i z) {
  const __m512i mixed = _mm512_mullo_epi64(_mm512_xor_si512(z, _mm512_srli_epi64(z, 32)),
                                           _mm512_set1_epi64(static_cast<long long>(kMix)));
  constexpr int kXorOr = (0xf0 ^ 0xcc) | 0xaa;  // (a ^ b) | c
  return _mm512_mullo_epi64(words, _mm512_ternarylogic_epi64(mixed, _mm512_srli_epi64(mixed, 32),
                                                             _mm512_set1_epi64(1), kXorOr));
}

template <bool kCopy>
LOCKSTEP_AVX512 uint64_t sum_avx512(Words& words) {
  const auto golden = [](uint64_t times_golden) {
    return static_cast<long long>(times_golden * kGolden);
  };
  const __m512i lanes = _mm512_set_epi64(golden(7), golden(6), golden(5), golden(4), golden(3),
                                         golden(2), golden(1), 0);
  const __m512i step = _mm512_set1_epi64(golden(16));
  __m512i z0 = _mm512_add_epi64(_mm512_set1_epi64(static_cast<long long>(words.z)), lanes);
  __m512i z1 = _mm512_add_epi64(z0, _mm512_set1_epi64(golden(8)));
  __m512i sum0 = _mm512_setzero_si512(), sum1 = sum0;
  const size_t done = words.count / 16 * 16;
  for (size_t i = 0; i < done; i += 16) {
    const __m512i sixteen = _mm512_loadu_si512(words.from + 4 * i);
    if constexpr (kCopy) _mm512_stream_si512(reinterpret_cast<__m512i*>(words.to + 4 * i), sixteen);
    sum0 = _mm512_add_epi64(sum0,
                            weighted(_mm512_cvtepu32_epi64(_mm512_castsi512_si256(sixteen)), z0));
    sum1 = _mm512_add_epi64(
        sum1, weighted(_mm512_cvtepu32_epi64(_mm512_extracti64x4_epi64(sixteen, 1)), z1));
    z0 = _mm512_add_epi64(z0, step);
    z1 = _mm512_add_epi64(z1, step);
  }
  words.skip(done);
  alignas(64) uint64_t lane[8];
  _mm512_store_si512(lane, _mm512_add_epi64(sum0, sum1));
  return std::accumulate(std::begin(lane), std::end(lane), uint64_t{0});
}

template <bool kCopy>
uint64_t sum_vectors(Words& words, Isa isa) {
  if (isa == Isa::kAvx512) return sum_avx512<kCopy>(words);
  return isa == Isa::kAvx2 ? sum_avx2<kCopy>(words) : 0;
}
#else
template <bool>
uint64_t sum_vectors(Words&, Isa) {
  return 0;
}
#endif

Words words_of(std::span<const std::byte> from, std::byte* to, int64_t flat_start) {
  LOCKSTEP_CHECK(from.size() % 4 == 0, "bytes ", from.size());
  return {from.data(), to, from.size() / 4, (static_cast<uint64_t>(flat_start) + 1) * kGolden};
}

}  // namespace

uint64_t fingerprint(std::span<const std::byte> fp32_bytes, int64_t flat_start, Isa isa) {
  Words words = words_of(fp32_bytes, nullptr, flat_start);
  const uint64_t sum = sum_vectors<false>(words, isa);
  return sum + sum_portable(words);
}

uint64_t copy_with_fingerprint(std::span<const std::byte> from, std::span<std::byte> to,
                               int64_t flat_start, Isa isa) {
  constexpr size_t kStoreBytes = 64;  // of the widest streaming store
  LOCKSTEP_CHECK(from.size() == to.size(), from.size(), " ", to.size());
  Words words = words_of(from, to.data(), flat_start);
  const size_t over = reinterpret_cast<uintptr_t>(to.data()) % kStoreBytes;
  if (isa == Isa::kPortable || over % 4 != 0) return copy_portable(words);
  const size_t head = std::min(words.count, (kStoreBytes - over) % kStoreBytes / 4);
  uint64_t sum = copy_portable({words.from, words.to, head, words.z});
  words.skip(head);
  sum += sum_vectors<true>(words, isa);
  sum += copy_portable(words);
#if defined(__x86_64__)
  _mm_sfence();  // streaming stores are seen by whoever is told of this copy
#endif
  return sum;
}

}  // namespace lockstep::checkpoint
