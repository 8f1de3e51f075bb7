// HDF5's checksum of its filter 3: Fletcher's sums of 16-bit big-endian words, modulo 65535.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep::checkpoint {

// Over pieces: all but the last one have an even number of bytes.
class Fletcher32 {
 public:
  void add(std::span<const std::byte> bytes);
  uint32_t digest() const;

 private:
  uint64_t sum1_ = 0, sum2_ = 0;  // of little-endian words, at most 65535
};

uint32_t fletcher32(std::span<const std::byte> bytes);
// Whether the last 4 bytes are the fletcher32 of those before them.
bool fletcher32_matches(std::span<const std::byte> stored);

inline constexpr size_t kFletcherBytes = 4;

}  // namespace lockstep::checkpoint
