// Sums modulo 65535 commute with swapping the bytes of a 16-bit word (a multiplication by 256), so
// little-endian words are added, 16 lanes at a time, and the two sums are swapped at the end.
#include "checkpoint/codec/fletcher32.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <cstring>

namespace lockstep::checkpoint {
namespace {

// GCC's and Clang's vectors compile to SSE2 or NEON alike.
typedef uint16_t Halves16 __attribute__((vector_size(32)));
typedef uint32_t Words16 __attribute__((vector_size(64)));

constexpr size_t kLanes = 16;
constexpr size_t kRows = 256;  // the lanes' second sums stay below 2^32: 65535 * 256 * 257 / 2

// Of each lane: the sum of its words, and the sum of that sum after each row.
struct LaneSums {
  uint32_t first[kLanes], second[kLanes];
};

LaneSums sum_rows_portable(const std::byte* at, size_t rows) {
  Words16 a{}, b{};
  for (size_t row = 0; row < rows; ++row, at += 2 * kLanes) {
    Halves16 half;
    std::memcpy(&half, at, sizeof half);
    a += __builtin_convertvector(half, Words16);
    b += a;
  }
  LaneSums sums;
  std::memcpy(sums.first, &a, sizeof a);
  std::memcpy(sums.second, &b, sizeof b);
  return sums;
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) LaneSums sum_rows_avx2(const std::byte* at, size_t rows) {
  __m256i a0 = _mm256_setzero_si256(), a1 = a0, b0 = a0, b1 = a0;
  const auto* in = reinterpret_cast<const __m128i*>(at);
  for (size_t row = 0; row < rows; ++row) {
    a0 = _mm256_add_epi32(a0, _mm256_cvtepu16_epi32(_mm_loadu_si128(in++)));
    a1 = _mm256_add_epi32(a1, _mm256_cvtepu16_epi32(_mm_loadu_si128(in++)));
    b0 = _mm256_add_epi32(b0, a0);
    b1 = _mm256_add_epi32(b1, a1);
  }
  LaneSums sums;
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums.first), a0);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums.first + 8), a1);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums.second), b0);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums.second + 8), b1);
  return sums;
}
#else
LaneSums sum_rows_avx2(const std::byte* at, size_t rows) { return sum_rows_portable(at, rows); }
#endif

uint64_t fold(uint64_t sum) {  // mod 65535; only 0 gives 0
  while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
  return sum;
}

uint32_t swap_bytes(uint64_t half) { return static_cast<uint32_t>((half & 0xff) << 8 | half >> 8); }

}  // namespace

void Fletcher32::add(std::span<const std::byte> bytes) {
  const std::byte* at = bytes.data();
  size_t halves = bytes.size() / 2;
  while (halves >= kLanes) {
    const size_t rows = std::min(kRows, halves / kLanes);
    const LaneSums sums =
        isa_ >= Isa::kAvx2 ? sum_rows_avx2(at, rows) : sum_rows_portable(at, rows);
    // The word in lane j of row m has weight rows * kLanes - (m * kLanes + j).
    uint64_t plain = 0, weighted = 0;
    for (size_t j = 0; j < kLanes; ++j) {
      plain += sums.first[j];
      weighted += kLanes * uint64_t{sums.second[j]} - j * uint64_t{sums.first[j]};
    }
    sum2_ = fold(sum2_ + rows * kLanes * sum1_ + weighted);
    sum1_ = fold(sum1_ + plain);
    halves -= rows * kLanes;
    at += 2 * kLanes * rows;
  }
  for (; halves > 0; --halves, at += 2) {
    uint16_t half;
    std::memcpy(&half, at, 2);
    sum1_ += half;
    sum2_ += sum1_;
  }
  if (bytes.size() % 2 != 0) {  // an odd last byte is the high one of a big-endian word
    sum1_ += static_cast<uint64_t>(*at);
    sum2_ += sum1_;
  }
  sum1_ = fold(sum1_);
  sum2_ = fold(sum2_);
}

uint32_t Fletcher32::digest() const { return swap_bytes(sum2_) << 16 | swap_bytes(sum1_); }

uint32_t fletcher32(std::span<const std::byte> bytes, Isa isa) {
  Fletcher32 sum(isa);
  sum.add(bytes);
  return sum.digest();
}

bool fletcher32_matches(std::span<const std::byte> stored) {
  if (stored.size() < kFletcherBytes) return false;
  uint32_t written;
  const size_t payload = stored.size() - kFletcherBytes;
  std::memcpy(&written, stored.data() + payload, kFletcherBytes);
  return written == fletcher32(stored.first(payload));
}

}  // namespace lockstep::checkpoint
