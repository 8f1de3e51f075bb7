// Fields of JSON that somebody else may have written: one of another type counts as missing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"

namespace lockstep::cli {

inline double number_or(const nlohmann::json& object, const char* key, double missing) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : missing;
}

inline int64_t integer_or(const nlohmann::json& object, const char* key, int64_t missing) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_integer() ? found->get<int64_t>() : missing;
}

inline std::string string_or_empty(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// Those of a list; none where there is no list.
inline std::vector<std::string> strings_of(const nlohmann::json& object, const char* key) {
  std::vector<std::string> strings;
  const auto found = object.find(key);
  if (found == object.end() || !found->is_array()) return strings;
  for (const nlohmann::json& item : *found)
    if (item.is_string()) strings.push_back(item.get<std::string>());
  return strings;
}

}  // namespace lockstep::cli
