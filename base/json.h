// JSON that somebody else may have made: nlohmann's parse with a limit on its depth, and dump for
// any bytes. Copies and dumps of nlohmann's call themselves once a level, so that a file of
// brackets alone would end the process.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

extern template class nlohmann::basic_json<>;
extern template class nlohmann::basic_json<nlohmann::ordered_map>;

namespace lockstep {
inline namespace base {

inline constexpr int kMaxJsonLevels = 64;

// json.cc compiles these two functions and the class once, for nlohmann::json and ordered_json:
// their templates are most of what a source with JSON costs.

// nlohmann::json::parse's value. Throws nlohmann's exceptions, or without `allow_exceptions`
// returns a discarded value, where `contents` is no JSON or too deep.
template <typename Json = nlohmann::json>
Json parse_json(std::string_view contents, bool allow_exceptions = true);

// nlohmann's dump of a value whose strings may hold bytes that are not UTF-8: those are replaced,
// where dump would throw. `indent` -1: one line.
template <typename Json>
std::string dump_json(const Json& json, int indent = -1);

}  // namespace base
}  // namespace lockstep
