// Code points and their classes, as the pre-tokenizers of the known families see them. The table is
// Unicode 16.0, whatever libraries this machine has: ids must not depend on those.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::data {

// Class bits. kWord is \w of Unicode's regular expressions.
enum : uint8_t {
  kUpper = 1,        // \p{Lu} \p{Lt}
  kLower = 2,        // \p{Ll}
  kOtherLetter = 4,  // \p{Lm} \p{Lo}
  kMark = 8,
  kNumber = 16,
  kSpace = 32,
  kWord = 64,
  kLetter = kUpper | kLower | kOtherLetter,
};

inline constexpr size_t kCodePoints = 0x110000;
// By code point. Filled on first use.
const std::array<uint8_t, kCodePoints>& unicode_classes();

struct CodePoint {
  uint32_t value = 0;
  uint32_t bytes = 1;
  uint8_t classes = 0;
};
// The code point at `at`. A byte that starts no valid sequence is one of no class.
// Requires: at < end.
CodePoint code_point_at(const char* at, const char* end);
// The code point that ends at `end`. Requires: begin < end.
CodePoint code_point_before(const char* begin, const char* end);

void append_utf8(uint32_t code_point, std::string& out);

// GPT-2's alphabet: a visible character for each byte, so that a vocabulary is text.
// byte -> code point; the inverse gives -1 for what is no byte.
uint32_t byte_character(uint8_t byte);
int byte_of_character(uint32_t code_point);
// The bytes that `characters` stand for, or false when one stands for none.
bool bytes_of_characters(std::string_view characters, std::string& bytes);

}  // namespace lockstep::data
