// The order in which one epoch visits the samples: a keyed permutation of [0, n) computed one
// element at a time. No table, no state: element i of epoch e costs the same at the start and after
// a resume.
//
// A Feistel network (8 rounds, mix64 as the round function, unequal halves when the width is odd)
// permutes [0, 2^b), b = max(8, bit_width(n - 1)); walking the cycle until the image falls below n
// makes it a permutation of [0, n) (Black and Rogaway, "Ciphers with Arbitrary Finite Domains",
// 2002). Expected steps of the walk: below 2 for n >= 256. The width is never below 8 bits, because
// a network on 1-bit halves reaches few of the n! orders.
//
// The domain is the data set, never the planned run length: a longer run keeps the order.
#pragma once

#include <array>
#include <cstdint>

namespace lockstep::data {

class SampleOrder {
 public:
  static constexpr int kRounds = 8;
  static constexpr int64_t kMaxSamples = int64_t{1} << 62;

  // Requires: 1 <= sample_count <= kMaxSamples, epoch >= 0.
  SampleOrder(int64_t sample_count, uint64_t seed, int64_t epoch);

  // The sample at `position` of the epoch. A bijection on [0, sample_count).
  // Requires: 0 <= position < sample_count.
  int64_t operator()(int64_t position) const;

 private:
  uint64_t permute(uint64_t x) const;  // a bijection on [0, 2^bits)

  int64_t sample_count_;
  int left_bits_, right_bits_;
  std::array<uint64_t, kRounds> round_keys_;
};

}  // namespace lockstep::data
