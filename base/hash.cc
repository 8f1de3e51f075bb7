// CRC32C is ours: ISA-L 2.30.0 has 0.27 to 0.38 of its speed at 4 and 8 bytes, 1.6 to 2.1 at 300,
// 1.25 at 4 KiB, 1.01 at 16 KiB, 0.96 at 256 KiB to 1 MiB, 0.93 to 1.00 on a record of TensorBoard
// (8 and 300 bytes); Intel Xeon, model 207, AVX-512 with VPCLMULQDQ. docs/PERFORMANCE.md has more.
#include "base/hash.h"

#include <xxhash.h>
#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h>  // the same functions, in AVX2 or AVX-512 where the CPU has them
#endif

#include <array>
#include <bit>
#include <cstring>

#include "base/check.h"

#if defined(__x86_64__)
#pragma GCC diagnostic ignored "-Wuninitialized"  // gcc 12 sees its own _mm512_undefined_epi32
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_acle.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace lockstep {
inline namespace base {
namespace {

static_assert(std::endian::native == std::endian::little, "words are read from memory as they lie");

constexpr uint32_t kCastagnoli = 0x82f63b78;  // reflected polynomial of RFC 3720

// table[k][b]: the CRC of byte b followed by k zero bytes ("slicing by 8").
constexpr std::array<std::array<uint32_t, 256>, 8> make_crc_tables() {
  std::array<std::array<uint32_t, 256>, 8> table{};
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kCastagnoli : 0);
    table[0][b] = crc;
  }
  for (size_t k = 1; k < 8; ++k)
    for (size_t b = 0; b < 256; ++b)
      table[k][b] = (table[k - 1][b] >> 8) ^ table[0][table[k - 1][b] & 0xff];
  return table;
}
constexpr auto kCrcTables = make_crc_tables();

uint64_t load64(const std::byte* at) {
  uint64_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

// kCrcAfterLane[k][b]: the register b << 8k after kCrcLane bytes of zeros: what a lane's CRC
// becomes when as many bytes follow it.
constexpr size_t kCrcLane = 2728;  // 6 lanes and 16 bytes make 16 KiB
constexpr std::array<std::array<uint32_t, 256>, 4> make_crc_lane_tables() {
  std::array<uint32_t, 32> of_bit{};
  for (size_t bit = 0; bit < 32; ++bit) {
    of_bit[bit] = uint32_t{1} << bit;
    for (size_t i = 0; i < kCrcLane; ++i)
      of_bit[bit] = (of_bit[bit] >> 8) ^ kCrcTables[0][of_bit[bit] & 0xff];
  }
  std::array<std::array<uint32_t, 256>, 4> table{};
  for (size_t k = 0; k < 4; ++k)
    for (size_t b = 0; b < 256; ++b)
      for (size_t bit = 0; bit < 8; ++bit)
        if ((b >> bit & 1) != 0) table[k][b] ^= of_bit[8 * k + bit];
  return table;
}
constexpr auto kCrcAfterLane = make_crc_lane_tables();

uint32_t after_lane(uint32_t crc) {
  const auto& table = kCrcAfterLane;
  return table[0][crc & 0xff] ^ table[1][crc >> 8 & 0xff] ^ table[2][crc >> 16 & 0xff] ^
         table[3][crc >> 24];
}

#if defined(__x86_64__)
#define LOCKSTEP_CRC __attribute__((target("sse4.2")))
using CrcRegister = uint64_t;  // the instruction's own: no moves between widths
LOCKSTEP_CRC inline CrcRegister crc_of_word(CrcRegister crc, uint64_t word) {
  return _mm_crc32_u64(crc, word);
}
LOCKSTEP_CRC inline uint32_t crc_of_byte(uint32_t crc, std::byte byte) {
  return _mm_crc32_u8(crc, static_cast<unsigned char>(byte));
}
bool has_crc_instruction() { return __builtin_cpu_supports("sse4.2") != 0; }
#elif defined(__aarch64__)
#define LOCKSTEP_CRC __attribute__((target("+crc")))
using CrcRegister = uint32_t;
LOCKSTEP_CRC inline CrcRegister crc_of_word(CrcRegister crc, uint64_t word) {
  return __crc32cd(crc, word);
}
LOCKSTEP_CRC inline uint32_t crc_of_byte(uint32_t crc, std::byte byte) {
  return __crc32cb(crc, static_cast<unsigned char>(byte));
}
bool has_crc_instruction() { return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0; }
#endif

#if defined(LOCKSTEP_CRC)
// On many CPUs the instruction takes 3 cycles but starts every cycle: three lanes side by side.
LOCKSTEP_CRC uint32_t crc32c_hardware(std::span<const std::byte> bytes, uint32_t crc) {
  CrcRegister state = static_cast<uint32_t>(~crc);
  const std::byte* at = bytes.data();
  size_t left = bytes.size();
  for (; left >= 3 * kCrcLane; left -= 3 * kCrcLane, at += 3 * kCrcLane) {
    CrcRegister second = 0, third = 0;
    for (size_t i = 0; i < kCrcLane; i += 8) {
      state = crc_of_word(state, load64(at + i));
      second = crc_of_word(second, load64(at + kCrcLane + i));
      third = crc_of_word(third, load64(at + 2 * kCrcLane + i));
    }
    const uint32_t both = after_lane(static_cast<uint32_t>(state)) ^ static_cast<uint32_t>(second);
    state = after_lane(both) ^ static_cast<uint32_t>(third);
  }
  for (; left >= 8; left -= 8, at += 8) state = crc_of_word(state, load64(at));
  uint32_t low = static_cast<uint32_t>(state);
  for (; left > 0; --left, ++at) low = crc_of_byte(low, *at);
  return ~low;
}
#else
uint32_t crc32c_hardware(std::span<const std::byte> bytes, uint32_t crc) {
  return crc32c_portable(bytes, crc);
}
bool has_crc_instruction() { return false; }
#endif

#if defined(__x86_64__)
// x^n modulo the polynomial, as the carry-less product of reflected registers wants it.
constexpr uint64_t x_to_the(int n) {
  uint32_t power = 0x80000000;
  for (; n > 0; --n) power = (power >> 1) ^ ((power & 1) != 0 ? kCastagnoli : 0);
  return uint64_t{power} << 1;
}

// Gopal et al., "Fast CRC computation using PCLMULQDQ" (2009), 256 bytes side by side: each 16 are
// multiplied onto those 256 bytes on, until 256 are left that have the CRC of all.
constexpr size_t kCrcFold = 256;
__attribute__((target("avx512f,vpclmulqdq,sse4.2"))) uint32_t crc32c_folded(
    std::span<const std::byte> bytes, uint32_t crc) {
  constexpr int kBits = 8 * kCrcFold;
  const auto low = static_cast<long long>(x_to_the(kBits + 32));
  const auto high = static_cast<long long>(x_to_the(kBits - 32));
  const __m512i onto = _mm512_set_epi64(high, low, high, low, high, low, high, low);
  const std::byte* at = bytes.data();
  size_t left = bytes.size();
  __m512i state[4];
  for (size_t i = 0; i < 4; ++i) state[i] = _mm512_loadu_si512(at + 64 * i);
  const __m128i start = _mm_cvtsi32_si128(static_cast<int>(~crc));
  state[0] = _mm512_xor_si512(state[0], _mm512_zextsi128_si512(start));
  for (at += kCrcFold, left -= kCrcFold; left >= kCrcFold; at += kCrcFold, left -= kCrcFold)
    for (size_t i = 0; i < 4; ++i)
      state[i] = _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(state[i], onto, 0x00),
                                           _mm512_clmulepi64_epi128(state[i], onto, 0x11),
                                           _mm512_loadu_si512(at + 64 * i), 0x96);
  std::byte folded[kCrcFold];
  for (size_t i = 0; i < 4; ++i) _mm512_storeu_si512(folded + 64 * i, state[i]);
  return crc32c_hardware({at, left}, crc32c_hardware(folded, ~uint32_t{0}));
}
bool has_wide_products() { return __builtin_cpu_supports("vpclmulqdq") != 0; }
#else
constexpr size_t kCrcFold = 256;
uint32_t crc32c_folded(std::span<const std::byte> bytes, uint32_t crc) {
  return crc32c_hardware(bytes, crc);
}
bool has_wide_products() { return false; }
#endif

}  // namespace

uint64_t xxh3_64(std::span<const std::byte> bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

uint64_t xxh3_64(std::string_view bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

uint32_t crc32c_portable(std::span<const std::byte> bytes, uint32_t crc) {
  const auto& table = kCrcTables;
  uint32_t state = ~crc;
  const std::byte* at = bytes.data();
  size_t left = bytes.size();
  for (; left >= 8; left -= 8, at += 8) {
    const uint64_t word = load64(at) ^ state;
    state = 0;
    for (size_t k = 0; k < 8; ++k) state ^= table[7 - k][(word >> (8 * k)) & 0xff];
  }
  for (; left > 0; --left, ++at)
    state = (state >> 8) ^ table[0][(state ^ static_cast<uint32_t>(*at)) & 0xff];
  return ~state;
}

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t crc, Isa isa) {
  static const bool hardware = has_crc_instruction(), wide = hardware && has_wide_products();
  if (wide && isa == Isa::kAvx512 && bytes.size() >= 2 * kCrcFold) return crc32c_folded(bytes, crc);
  return hardware ? crc32c_hardware(bytes, crc) : crc32c_portable(bytes, crc);
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
