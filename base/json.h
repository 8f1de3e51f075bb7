// JSON that somebody else may have made: nlohmann's parse with a limit on its depth, and dump for
// any bytes. Copies and dumps of nlohmann's call themselves once a level, so that a file of
// brackets alone would end the process.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace lockstep {
inline namespace base {

inline constexpr int kMaxJsonLevels = 64;

// Whether lists and objects of `contents` stand in each other at most kMaxJsonLevels deep. Of what
// is no JSON it says something, and reads it once.
inline bool is_shallow_json(std::string_view contents) {
  int level = 0;
  bool in_string = false;
  for (size_t i = 0; i < contents.size(); ++i) {
    const char c = contents[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++level > kMaxJsonLevels) return false;
    } else if (c == ']' || c == '}') {
      --level;
    }
  }
  return true;
}

// nlohmann::json::parse's value. Throws nlohmann's exceptions, or without `allow_exceptions`
// returns a discarded value, where `contents` is no JSON or too deep.
template <typename Json = nlohmann::json>
Json parse_json(std::string_view contents, bool allow_exceptions = true) {
  if (is_shallow_json(contents)) return Json::parse(contents, nullptr, allow_exceptions);
  if (!allow_exceptions) return Json(Json::value_t::discarded);
  const std::string what = "nested more than " + std::to_string(kMaxJsonLevels) + " levels deep";
  throw Json::other_error::create(500, what, nullptr);
}

// nlohmann's dump of a value whose strings may hold what is no UTF-8: that is replaced, where dump
// would throw. `indent` -1: one line.
template <typename Json>
std::string dump_json(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace base
}  // namespace lockstep
