// Hashes and counter-based random numbers: functions of their arguments, no state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {
inline namespace base {

uint64_t xxh3_64(std::span<const std::byte> bytes, uint64_t seed = 0);
uint64_t xxh3_64(std::string_view bytes, uint64_t seed = 0);
// CRC32C (Castagnoli), as iSCSI and TensorBoard use it, by ISA-L.
// `crc` continues an earlier run: crc32c(ab) == crc32c(b, crc32c(a)).
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t crc = 0);
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

struct Philox4 {
  uint32_t word[4];
};
// Philox 4x32-10 (Salmon et al., SC'11): 4 random 32-bit words for (key, counter). constexpr, so
// that CUDA kernels compile the same function.
constexpr Philox4 philox(uint64_t key, uint64_t counter_high, uint64_t counter_low) {
  constexpr uint64_t kMultiplier0 = 0xd2511f53, kMultiplier1 = 0xcd9e8d57;
  constexpr uint32_t kWeyl0 = 0x9e3779b9, kWeyl1 = 0xbb67ae85;
  uint32_t key0 = static_cast<uint32_t>(key), key1 = static_cast<uint32_t>(key >> 32);
  uint32_t c0 = static_cast<uint32_t>(counter_low);
  uint32_t c1 = static_cast<uint32_t>(counter_low >> 32);
  uint32_t c2 = static_cast<uint32_t>(counter_high);
  uint32_t c3 = static_cast<uint32_t>(counter_high >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = kMultiplier0 * c0, product1 = kMultiplier1 * c2;
    c0 = static_cast<uint32_t>(product1 >> 32) ^ c1 ^ key0;
    c1 = static_cast<uint32_t>(product1);
    c2 = static_cast<uint32_t>(product0 >> 32) ^ c3 ^ key1;
    c3 = static_cast<uint32_t>(product0);
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return {{c0, c1, c2, c3}};
}
// The key of one purpose ("init", "dropout", "order", …) under `seed`.
uint64_t purpose_key(uint64_t seed, std::string_view purpose);

}  // namespace base
}  // namespace lockstep
