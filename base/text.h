// Small pieces of text: joining values into a message, and numbers as people read them.
#pragma once

#include <cstdint>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {
inline namespace base {

// "step ", 3, " of ", 10 -> "step 3 of 10"
template <typename... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream out;
  static_cast<void>((out << ... << parts));
  return out.str();
}

// 1536 -> "1.50 KiB"
std::string bytes_text(uint64_t bytes);
// 5847 -> "5,847"
std::string grouped(int64_t number);
// 1, "node" -> "1 node"; 2, "node" -> "2 nodes"
std::string counted(int64_t count, std::string_view noun);
// 7, 5 -> "00007". Requires: number >= 0.
std::string zero_padded(int64_t number, size_t digits);
// printf-style for one number: fixed(3.14159, 2) -> "3.14"
std::string fixed(double value, int decimals);
// 75.2 -> "0:01:15"
std::string duration_text(double seconds);
// The exact value as a C99 hexadecimal float ("0x1.8p+1"), and back. "nan"/"inf" pass through.
std::string hex_float(double value);
// Empty when the whole word is not one number (decimal works as well).
std::optional<double> parse_hex_float(const std::string& word);
// Single-character edits between two words, of which exchanging neighbours is one.
int edit_distance(std::string_view a, std::string_view b);
// The candidate nearest to `word`, or "" when none is near (distance > 1/3 of the length).
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);
std::vector<std::string> split(std::string_view line, char separator);
// As one word of a POSIX shell: a b -> 'a b'; what needs no quotes gets none.
std::string shell_quoted(const std::string& word);

}  // namespace base
}  // namespace lockstep
