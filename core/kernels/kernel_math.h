// What the kernels' sources share. Inner loops work on fp32 in runs of at most kRun elements: bf16
// is widened into a small array first and narrowed from one last, because loops over mixed widths
// do not vectorize well. fp32 is worked on where it lies.
#pragma once

#include <cstdint>

#include "core/kernels/kernel_types.h"

// LOCKSTEP_VECTOR_CLONES: compile the function for AVX-512, AVX2 and the baseline, and pick at
// load time. Contraction is off everywhere, so the versions give the same bits. The portable form
// is the function itself.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__)
#define LOCKSTEP_VECTOR_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define LOCKSTEP_VECTOR_CLONES
#endif

// A kernel's body, compiled into each vector clone of the functions that call it.
#define LOCKSTEP_KERNEL \
  template <typename T> \
  __attribute__((always_inline)) inline void
// What begins a public kernel of one element type, which calls such a body: its vector clones.
#define LOCKSTEP_CLONED \
  template <>           \
  LOCKSTEP_VECTOR_CLONES void

namespace lockstep::core {

inline constexpr int64_t kLanes = 16;
inline constexpr int64_t kRun = 256;  // a multiple of kLanes

#define LOCKSTEP_INLINE __attribute__((always_inline)) inline

LOCKSTEP_INLINE const float* widened(const float* x, float*, int64_t) { return x; }
LOCKSTEP_INLINE const float* widened(const Bf16* x, float* run, int64_t n) {
  for (int64_t i = 0; i < n; ++i) run[i] = bf16_to_float(x[i].bits);
  return run;
}
// Its upper half is float_to_bf16(value). In 32 bits throughout, it vectorizes better.
LOCKSTEP_INLINE uint32_t bf16_word(float value) {
  const uint32_t word = __builtin_bit_cast(uint32_t, value);
  const uint32_t rounded = word + 0x7fffu + ((word >> 16) & 1u);
  const bool nan = (word & 0x7fffffffu) > 0x7f800000u;
  return nan ? word | 0x400000u : rounded;
}
// Where results for y are to be computed; `narrowed` takes them there.
LOCKSTEP_INLINE float* room_for(float* y, float*) { return y; }
LOCKSTEP_INLINE float* room_for(Bf16*, float* run) { return run; }
LOCKSTEP_INLINE void narrowed(float*, const float*, int64_t) {}
LOCKSTEP_INLINE void narrowed(Bf16* y, const float* run, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i].bits = static_cast<uint16_t>(bf16_word(run[i]) >> 16);
}

// The lanes of a sum, folded in a fixed order.
LOCKSTEP_INLINE float fold_lanes(const float* lanes) {
  float width8[8], width4[4];
  for (int i = 0; i < 8; ++i) width8[i] = lanes[i] + lanes[i + 8];
  for (int i = 0; i < 4; ++i) width4[i] = width8[i] + width8[i + 4];
  return (width4[0] + width4[2]) + (width4[1] + width4[3]);
}

// lanes[i % kLanes] += term(i) for i in [0, n), vectorized.
template <typename F>
LOCKSTEP_INLINE void add_to_lanes(float* lanes, int64_t n, F&& term) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int64_t k = 0; k < kLanes; ++k) lanes[k] += term(i + k);
  for (; i < n; ++i) lanes[i % kLanes] += term(i);
}

// e^x by range reduction to [-ln2/2, ln2/2] and a degree-6 polynomial (Cephes' expf coefficients);
// about 2 ulp. Written without a library call so that it vectorizes and gives the same bits
// everywhere.
LOCKSTEP_INLINE float exp_fast(float x) {
  x = x < -87.0f ? -87.0f : (x > 88.0f ? 88.0f : x);
  const float n_magic = x * 1.44269504088896341f + 12582912.0f;  // round to nearest integer
  const float n = n_magic - 12582912.0f;
  float r = x - n * 0.693359375f;
  r = r - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const int32_t exponent = (__builtin_bit_cast(int32_t, n_magic) - 0x4b400000 + 127) << 23;
  return p * __builtin_bit_cast(float, exponent);
}

// base/hash.h's philox for the counters low … low + kLanes - 1 at once: words[w][l] is word w of
// counter low + l.
LOCKSTEP_INLINE void philox_lanes(uint64_t key, uint64_t high, uint64_t low,
                                  uint32_t (*words)[kLanes]) {
  uint32_t key0 = static_cast<uint32_t>(key), key1 = static_cast<uint32_t>(key >> 32);
  for (int64_t l = 0; l < kLanes; ++l) {
    const uint64_t counter = low + static_cast<uint64_t>(l);
    words[0][l] = static_cast<uint32_t>(counter);
    words[1][l] = static_cast<uint32_t>(counter >> 32);
    words[2][l] = static_cast<uint32_t>(high);
    words[3][l] = static_cast<uint32_t>(high >> 32);
  }
  for (int round = 0; round < 10; ++round) {
    for (int64_t l = 0; l < kLanes; ++l) {
      const uint64_t product0 = uint64_t{0xd2511f53} * words[0][l];
      const uint64_t product1 = uint64_t{0xcd9e8d57} * words[2][l];
      words[0][l] = static_cast<uint32_t>(product1 >> 32) ^ words[1][l] ^ key0;
      words[1][l] = static_cast<uint32_t>(product1);
      words[2][l] = static_cast<uint32_t>(product0 >> 32) ^ words[3][l] ^ key1;
      words[3][l] = static_cast<uint32_t>(product0);
    }
    key0 += 0x9e3779b9;
    key1 += 0xbb67ae85;
  }
}

LOCKSTEP_INLINE float sigmoid(float x) { return 1.0f / (1.0f + exp_fast(-x)); }

}  // namespace lockstep::core
