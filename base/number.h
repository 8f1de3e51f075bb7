// A word as a whole number.
#pragma once

#include <charconv>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string_view>

namespace lockstep {
inline namespace base {

// None where anything else than the digits of such a number is there ("", "+1", "4x"), or where
// Number has no room for it.
template <std::integral Number = int64_t>
std::optional<Number> parse_number(std::string_view word, int base = 10) {
  Number number{};
  const char* const end = word.data() + word.size();
  const auto [stop, error] = std::from_chars(word.data(), end, number, base);
  if (error != std::errc{} || stop != end) return std::nullopt;
  return number;
}

}  // namespace base
}  // namespace lockstep
