// Hashes and counter-based random numbers: functions of their arguments, no state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/cpu.h"

namespace lockstep {
inline namespace base {

uint64_t xxh3_64(std::span<const std::byte> bytes, uint64_t seed = 0);
uint64_t xxh3_64(std::string_view bytes, uint64_t seed = 0);
// CRC32C (Castagnoli), as iSCSI and TensorBoard use it; hardware where the CPU has it.
// `crc` continues an earlier run: crc32c(ab) == crc32c(b, crc32c(a)).
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t crc = 0, Isa isa = best_isa());
// The same from tables alone: what CPUs without the instruction run.
uint32_t crc32c_portable(std::span<const std::byte> bytes, uint32_t crc = 0);
std::string hex64(uint64_t value);  // 16 lower-case digits

// SplitMix64's finaliser (Steele, Lea, Flood 2014): a bijection on 64-bit words that mixes all
// bits.
constexpr uint64_t mix64(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}
// Streaming XXH3 over pieces.
class Xxh3Stream {
 public:
  Xxh3Stream();
  ~Xxh3Stream();
  Xxh3Stream(const Xxh3Stream&) = delete;
  Xxh3Stream& operator=(const Xxh3Stream&) = delete;
  void reset();
  void update(std::span<const std::byte> bytes);
  uint64_t digest() const;

 private:
  void* state_;
};

// Philox 4x32-10 (Salmon et al., SC'11): 4 random 32-bit words for (key, counter).
struct Philox4 {
  uint32_t word[4];
};
Philox4 philox(uint64_t key, uint64_t counter_high, uint64_t counter_low);
// The key of one purpose ("init", "dropout", "order", …) under `seed`.
uint64_t purpose_key(uint64_t seed, std::string_view purpose);

}  // namespace base
}  // namespace lockstep
