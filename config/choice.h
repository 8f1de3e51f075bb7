// An enum whose values have words: words_for, beside the enum, returns word_list of them in the
// order of the values. Where a file or a flag is read the word becomes a value, once; where one is
// written the value becomes a word.
#pragma once

#include <array>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>

namespace lockstep {
inline namespace base {

// `last`: the enum's last value.
template <auto last, typename... Words>
constexpr auto word_list(Words... each) {
  static_assert(sizeof...(each) == static_cast<size_t>(last) + 1, "a word for each value");
  return std::array<std::string_view, sizeof...(each)>{each...};
}

template <typename T>
concept Choice = requires(T value) {
  words_for(value);
};

template <Choice T>
inline constexpr auto kWords = words_for(T{});

template <Choice T>
constexpr std::string_view word_of(T value) {
  return kWords<T>.at(static_cast<size_t>(value));
}

// Nothing where `word` is none of them.
template <Choice T>
constexpr std::optional<T> choice_of(std::string_view word) {
  for (size_t i = 0; i < kWords<T>.size(); ++i)
    if (kWords<T>[i] == word) return static_cast<T>(i);
  return std::nullopt;
}

template <Choice T>
std::ostream& operator<<(std::ostream& out, T value) {
  return out << word_of(value);
}

}  // namespace base
}  // namespace lockstep

// In JSON too it is its word, and not a number.
template <lockstep::Choice T>
struct nlohmann::adl_serializer<T, void> {
  template <typename Json>
  static void to_json(Json& json, T value) {
    json = std::string(lockstep::word_of(value));
  }
};
