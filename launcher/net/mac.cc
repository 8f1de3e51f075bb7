#include "launcher/net/mac.h"

#include <sodium.h>

#include "base/check.h"

namespace lockstep::launcher::net {
namespace {

const unsigned char* raw(std::string_view bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

void start_library() {
  static const int started = sodium_init();
  LOCKSTEP_CHECK(started >= 0, "libsodium does not start");
}

}  // namespace

Digest hmac_sha256(std::span<const unsigned char> key,
                   std::initializer_list<std::string_view> parts) {
  start_library();
  crypto_auth_hmacsha256_state state;
  crypto_auth_hmacsha256_init(&state, key.data(), key.size());
  for (const std::string_view part : parts)
    crypto_auth_hmacsha256_update(&state, raw(part), part.size());
  Digest digest;
  crypto_auth_hmacsha256_final(&state, digest.data());
  return digest;
}

bool same_bytes(std::string_view a, std::string_view b) {
  return a.size() == b.size() && sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

void fill_random(std::span<unsigned char> bytes) {
  start_library();
  randombytes_buf(bytes.data(), bytes.size());
}

void wipe(std::span<unsigned char> bytes) { sodium_memzero(bytes.data(), bytes.size()); }

std::string hex_digits(std::span<const unsigned char> bytes) {
  std::string digits(2 * bytes.size() + 1, '\0');
  sodium_bin2hex(digits.data(), digits.size(), bytes.data(), bytes.size());
  digits.pop_back();  // its zero
  return digits;
}

bool read_hex_digits(std::string_view digits, std::span<unsigned char> bytes) {
  size_t size = 0;
  return sodium_hex2bin(bytes.data(), bytes.size(), digits.data(), digits.size(),
                        /*ignore=*/nullptr, &size, /*hex_end=*/nullptr) == 0 &&
         size == bytes.size();
}

}  // namespace lockstep::launcher::net
