// The keys as a person types them: for --help, and for the completion of shells.
#include <string_view>

#include "base/text.h"
#include "config/config.h"
#include "config/config_field.h"

namespace lockstep {
inline namespace base {
std::string config_help() {
  constexpr size_t kColumn = 44;
  const auto padded = [](std::string words) {
    if (words.size() < kColumn) words.resize(kColumn, ' ');
    return words + " ";
  };
  const Config defaults;
  std::string out, section;
  for (const ConfigField& field : config_fields()) {
    if (section != field.section) {
      section = field.section;
      out += text("\n[", section, "]\n");
    }
    std::string value = value_text(defaults, field);
    if (value.empty()) value = "\"\"";
    out += padded(text("  --", field.name(), " ", value)) + field.help;
    const std::string limits = limits_text(field);
    if (!limits.empty()) out += " (" + limits + ")";
    out += '\n';
  }
  out += "\nShort names\n";
  for (const ConfigAlias& alias : config_aliases())
    out += padded(text("  --", alias.alias)) + text(alias.name, ": ", alias.help, "\n");
  out +=
      "\nBooleans: --section.key, --section.no_key, --section.key=true|false."
      "\nIn names, - and _ are alike. In a TOML file: [section], then key = value.\n";
  return out;
}

std::vector<ConfigFlag> config_flags() {
  const auto flag_of = [](const std::string& name, const ConfigField& field, const char* help) {
    const bool is_text = std::string_view(type_name(field)).ends_with("string") ||
                         std::string_view(type_name(field)) == "list of strings";
    return ConfigFlag{name, help, field.is_bool(), is_text, words_of(field)};
  };
  std::vector<ConfigFlag> flags;
  for (const ConfigField& field : config_fields())
    flags.push_back(flag_of(field.name(), field, field.help));
  for (const ConfigAlias& alias : config_aliases()) {
    const std::string name = alias.name;
    const size_t dot = name.find('.');
    const ConfigField* field = find_config_field(name.substr(0, dot), name.substr(dot + 1));
    flags.push_back(flag_of(alias.alias, *field, alias.help));
    if (alias.on != nullptr) flags.back() = {alias.alias, alias.help, true, false, {}};
  }
  return flags;
}

}  // namespace base
}  // namespace lockstep
