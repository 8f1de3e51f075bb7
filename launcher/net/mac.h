// HMAC-SHA256 and random bytes: the only file that calls libsodium.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

namespace lockstep::launcher::net {

using Digest = std::array<unsigned char, 32>;
using Key = Digest;

// RFC 2104 over SHA-256, of the parts one after the other. Requires: the parts' bounds are known
// from their place (fixed sizes, or a length in a part before).
Digest hmac_sha256(std::span<const unsigned char> key,
                   std::initializer_list<std::string_view> parts);
// In a time that does not tell where they differ. Sizes must be equal to be equal.
bool same_bytes(std::string_view a, std::string_view b);
// From the kernel; never fails, and cannot be foretold.
void fill_random(std::span<unsigned char> bytes);
// Zeros that the compiler may not leave out.
void wipe(std::span<unsigned char> bytes);

// Two lower-case digits a byte.
std::string hex_digits(std::span<const unsigned char> bytes);
// False where `digits` are not the hexadecimal digits, of either case, of as many bytes.
bool read_hex_digits(std::string_view digits, std::span<unsigned char> bytes);

inline std::string_view view(std::span<const unsigned char> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace lockstep::launcher::net
