// A Config as the TOML file that gives it.
#include <type_traits>

#include "base/json.h"
#include "base/text.h"
#include "config/config.h"
#include "config/config_field.h"

namespace lockstep {
inline namespace base {
namespace {

// JSON's strings are basic strings of TOML.
std::string quoted(const std::string& words) { return dump_json(nlohmann::json(words)); }

std::string listed(const std::vector<std::string>& items) {
  std::string out;
  for (const std::string& item : items) out += (out.empty() ? "" : ", ") + item;
  return "[" + out + "]";
}

std::string toml_value(const Config& config, const ConfigField& field) {
  const auto write = [&](auto member) -> std::string {
    const auto& value = *member(const_cast<Config&>(config));  // the table is for mutable ones
    using T = std::decay_t<decltype(value)>;
    std::vector<std::string> items;
    if constexpr (std::is_same_v<T, std::vector<std::string>>) {
      for (const std::string& item : value) items.push_back(quoted(item));
      return listed(items);
    } else if constexpr (std::is_same_v<T, std::vector<int64_t>>) {
      for (const int64_t item : value) items.push_back(std::to_string(item));
      return listed(items);
    } else if constexpr (std::is_arithmetic_v<T>) {
      return value_text(config, field);
    } else {
      return quoted(value_text(config, field));
    }
  };
  return std::visit(write, field.member);
}

}  // namespace

std::string config_toml(const Config& config) {
  const Config whole = resolved(config);
  std::string out;
  const char* section = "";
  for (const ConfigField& field : config_fields()) {
    if (std::string_view(section) != field.section)
      out += text(out.empty() ? "" : "\n", "[", section = field.section, "]\n");
    out += text(field.key, " = ", toml_value(whole, field), "\n");
  }
  return out;
}

}  // namespace base
}  // namespace lockstep
