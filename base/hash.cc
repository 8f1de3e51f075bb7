#include "base/hash.h"

#include <isa-l/crc.h>
#include <xxhash.h>
#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h>  // the same functions, in AVX2 or AVX-512 where the CPU has them
#endif

#include <algorithm>
#include <array>

#include "base/check.h"

namespace lockstep {
inline namespace base {
namespace {

// ISA-L takes three times as long for a chunk's last 4 bytes: these are looked up.
constexpr size_t kFewBytes = 8;
constexpr std::array<uint32_t, 256> make_crc_table() {
  constexpr uint32_t kCastagnoli = 0x82f63b78;  // reflected polynomial of RFC 3720
  std::array<uint32_t, 256> table{};
  for (uint32_t b = 0; b < 256; ++b) {
    table[b] = b;
    for (int bit = 0; bit < 8; ++bit)
      table[b] = (table[b] >> 1) ^ ((table[b] & 1) != 0 ? kCastagnoli : 0);
  }
  return table;
}

uint32_t crc_of_few(std::span<const std::byte> bytes, uint32_t state) {
  static constexpr auto kTable = make_crc_table();
  for (const std::byte byte : bytes)
    state = (state >> 8) ^ kTable[(state ^ static_cast<uint32_t>(byte)) & 0xff];
  return state;
}

uint32_t crc_of_many(std::span<const std::byte> bytes, uint32_t state) {
  constexpr size_t kMost = size_t{1} << 30;  // its length is an int
  while (!bytes.empty()) {
    const auto piece = bytes.first(std::min(bytes.size(), kMost));
    auto* at = const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(piece.data()));
    state = crc32_iscsi(at, static_cast<int>(piece.size()), state);
    bytes = bytes.subspan(piece.size());
  }
  return state;
}

}  // namespace

uint64_t xxh3_64(std::span<const std::byte> bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

uint64_t xxh3_64(std::string_view bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t crc) {
  return ~(bytes.size() <= kFewBytes ? crc_of_few(bytes, ~crc) : crc_of_many(bytes, ~crc));
}

std::string hex64(uint64_t value) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out(16, '0');
  for (size_t i = 0; i < 16; ++i) out[i] = kDigits[(value >> (60 - 4 * i)) & 0xf];
  return out;
}

Xxh3Stream::Xxh3Stream() : state_(XXH3_createState()) {
  LOCKSTEP_CHECK(state_ != nullptr, "out of memory");
  reset();
}
void Xxh3Stream::reset() { XXH3_64bits_reset(static_cast<XXH3_state_t*>(state_)); }
Xxh3Stream::~Xxh3Stream() { XXH3_freeState(static_cast<XXH3_state_t*>(state_)); }
void Xxh3Stream::update(std::span<const std::byte> bytes) {
  XXH3_64bits_update(static_cast<XXH3_state_t*>(state_), bytes.data(), bytes.size());
}
uint64_t Xxh3Stream::digest() const {
  return XXH3_64bits_digest(static_cast<const XXH3_state_t*>(state_));
}

uint64_t purpose_key(uint64_t seed, std::string_view purpose) {
  return mix64(xxh3_64(purpose, seed));
}

}  // namespace base
}  // namespace lockstep
