// The table behind config.h: every key once. Private to config/ and its tests.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "config/sections.h"

namespace lockstep {
inline namespace base {

// Where the value lives in a Config; the alternative is the key's type.
using ConfigMember = std::variant<bool* (*)(Config&), int64_t* (*)(Config&), double* (*)(Config&),
                                  std::string* (*)(Config&), std::vector<int64_t>* (*)(Config&),
                                  std::vector<std::string>* (*)(Config&)>;

// May the key change a bit of the loss curve? Then it is part of the run's identity.
enum class Bits { kSame, kMayChange };

struct ConfigLimits {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool above_min = false;            // min itself is not allowed
  std::vector<std::string> allowed;  // strings: the closed list; empty: any
};

struct ConfigField {
  const char* section;
  const char* key;
  ConfigMember member;
  Bits bits;
  const char* help;
  ConfigLimits limits;

  std::string name() const { return std::string(section) + "." + key; }
  bool is_bool() const { return member.index() == 0; }
};

struct ConfigAlias {
  const char* alias;  // with '_'; typed with '-' or '_'
  const char* name;   // section.key
  const char* help;
  // A string key that is typed as a boolean: what true and false stand for.
  const char* on = nullptr;
  const char* off = nullptr;
};

// In the order of config.h.
const std::vector<ConfigField>& config_fields();
const std::vector<ConfigAlias>& config_aliases();
// nullptr when there is none.
const ConfigField* find_config_field(std::string_view section, std::string_view key);

// "boolean", "integer", "number", "string", "list of integers", "list of strings"
const char* type_name(const ConfigField& field);
// The value as one types it after the flag; doubles in the shortest form that reads back exactly.
std::string value_text(const Config& config, const ConfigField& field);
// ">= 1", "one of: a, b", or "".
std::string limits_text(const ConfigField& field);

}  // namespace base
}  // namespace lockstep
