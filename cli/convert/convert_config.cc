#include "cli/convert/convert_config.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <vector>

#include "base/json.h"
#include "base/text.h"
#include "cli/convert/convert_rules.h"
#include "config/config.h"
#include "config/foreign_keys.h"

namespace lockstep::cli {
namespace {

using nlohmann::ordered_json;

constexpr int kMostLevels = 8;
constexpr size_t kMostShown = 60;  // of a value

struct Said {
  std::string name;
  ordered_json value;
};

void flatten(const ordered_json& object, const std::string& before, int levels,
             std::vector<Said>& all) {
  for (const auto& [key, value] : object.items()) {
    const std::string name = before.empty() ? key : before + "." + key;
    if (value.is_object() && levels > 0)
      flatten(value, name, levels - 1, all);
    else
      all.push_back({name, value});
  }
}

std::string last_word(const std::string& name) { return name.substr(name.rfind('.') + 1); }

bool has_exactly(const ForeignTool& tool, const std::string& name) {
  const ForeignKey* const key = find_foreign_key(tool, name);
  if (key == nullptr) return false;
  return std::string_view(key->name).ends_with('*') || key->name == name ||
         last_word(name) == key->name;
}

const ForeignTool* tool_of(const std::vector<Said>& all, const std::string& wanted) {
  const ForeignTool* best = nullptr;
  int64_t most = 0;
  for (const ForeignTool& tool : foreign_tools()) {
    if (wanted == tool.name) return &tool;
    const int64_t count = std::count_if(
        all.begin(), all.end(), [&](const Said& said) { return has_exactly(tool, said.name); });
    if (wanted.empty() && count > most) {
      most = count;
      best = &tool;
    }
  }
  return best;
}

// By the tool's own name of it; else by that of another tool, whose part of the file it is.
const ForeignKey* key_of(const ForeignTool& tool, const std::string& name) {
  if (const ForeignKey* const key = find_foreign_key(tool, name)) return key;
  if (name.find('.') == std::string::npos) return nullptr;
  for (const ForeignTool& other : foreign_tools())
    for (const std::string& each : {last_word(name), "fsdp_" + last_word(name)})
      if (const ForeignKey* const key = find_foreign_key(other, each); key && each == key->name)
        return key;
  return nullptr;
}

std::string shown(const Said& said) {
  std::string value = word_of_value(said.value);
  if (value.size() > kMostShown) value = value.substr(0, kMostShown) + "…";
  for (char& c : value)
    if (c == '\n' || c == '\r') c = ' ';
  return said.name + " = " + (value.empty() ? "\"\"" : value);
}

bool is_needless(const ForeignKey& key, const ordered_json& value) {
  const std::string_view needless = key.needless;
  if (value.is_null() || value == "auto" || needless == "any") return true;
  if (needless == "none" && (value == "" || value == "none")) return true;
  if (value.is_array() && value.empty()) return true;
  return !needless.empty() && word_of_value(value) == needless;
}

class Conversion {
 public:
  Conversion(const ForeignTool& tool, const ConvertOptions& options)
      : tool_(tool), options_(options) {}

  void take(const Said& said) {
    const ForeignKey* const key = key_of(tool_, said.name);
    if (key == nullptr) {
      // A name that is ours as well means ours.
      if (is_own(said.name) && set(said.name, said.value)) return;
      return lose(said, "lockstep knows no such key of another tool");
    }
    if (key->becomes != Becomes::kValueOf && is_needless(*key, said.value)) {
      needless_.push_back(said.name);
      return;
    }
    switch (key->becomes) {
      case Becomes::kValueOf:
        if (said.value.is_null() || said.value == "auto" || is_needless(*key, said.value))
          needless_.push_back(said.name);
        else if (!set(key->key, said.value))
          lose(said, text(key->key, " takes no such value"));
        return;
      case Becomes::kOtherwise:
        if (facts_.take(key->name, said.value)) {
          ++taken_;
          return;
        }
        return lose(said, text("it would be ", key->key, ": ", key->words));
      case Becomes::kNowhere: return lose(said, key->words);
    }
  }

  ConvertedConfig finish(const std::string& where) {
    for (const auto& [key, word] : facts_.keys(tool_.name, values_, options_.ranks))
      if (!values_.contains(key) || (key == "validation.freq" && word == "0")) values_[key] = word;
    const std::set<std::string> defaults = add_defaults();
    ConvertedConfig result;
    result.tool = tool_.name;
    result.taken = taken_;
    result.needless = std::ssize(needless_);
    result.without = std::ssize(lost_);
    result.toml = text("# Written by `lockstep convert-config` from ", where, ", a config of ",
                       tool_.name, ".\n");
    if (!needless_.empty()) {
      result.toml += "# These keys say what happens here anyway, or nothing: ";
      for (size_t i = 0; i < needless_.size(); ++i)
        result.toml += (i == 0 ? "" : ", ") + needless_[i];
      result.toml += ".\n";
    }
    for (const std::string& line : lost_) result.toml += "# " + line + "\n";
    for (const std::string& line : facts_.remarks()) result.toml += "# " + line + "\n";
    result.toml += sections(defaults, result.wrong_words);
    return result;
  }

 private:
  static bool is_own(const std::string& name) {
    const auto flags = config_flags();
    return std::any_of(flags.begin(), flags.end(),
                       [&](const ConfigFlag& flag) { return flag.name == name; });
  }

  // Whether `key` takes the value.
  bool set(const std::string& key, const ordered_json& value) {
    const std::string word = word_of_value(value);
    if (!parse_config("", {"--" + key + "=" + word})) return false;
    values_[key] = word;
    ++taken_;
    return true;
  }

  void lose(const Said& said, const std::string& why) {
    lost_.push_back(text(shown(said), ": no counterpart: ", why));
  }

  std::set<std::string> add_defaults() {
    std::set<std::string> added;
    for (const auto& [key, word] : defaults_of(tool_.name, values_))
      if (values_.try_emplace(key, word).second) added.insert(key);
    return added;
  }

  // The keys that have a value, as config_toml writes them.
  std::string sections(const std::set<std::string>& defaults, std::string& wrong_words) const {
    std::vector<std::string> flags;
    for (const auto& [key, word] : values_) flags.push_back("--" + key + "=" + word);
    const auto parsed = parse_config("", flags);
    if (!parsed) {
      wrong_words = parsed.error().message;
      return "";
    }
    if (const auto valid = validate(parsed.value().config); !valid)
      wrong_words = valid.error().message;
    std::string out, section, pending;
    for (const std::string& line : split(config_toml(parsed.value().config), '\n')) {
      if (line.starts_with('[')) {
        section = line.substr(1, line.size() - 2);
        pending = text("\n", line, "\n");
        continue;
      }
      const std::string key = section + "." + line.substr(0, line.find(' '));
      if (!values_.contains(key)) continue;
      out += pending + line;
      if (defaults.contains(key)) out += text("  # what ", tool_.name, " does without a word");
      out += "\n";
      pending.clear();
    }
    return out;
  }

  const ForeignTool& tool_;
  const ConvertOptions& options_;
  ForeignFacts facts_;
  std::map<std::string, std::string> values_;  // of our keys
  std::vector<std::string> needless_, lost_;
  int64_t taken_ = 0;
};

}  // namespace

Result<ConvertedConfig> convert_config(std::string_view json, const std::string& where,
                                       const ConvertOptions& options) {
  const auto object = parse_json<ordered_json>(json, /*allow_exceptions=*/false);
  if (!object.is_object())
    return Error{Code::kConfig, text(where, " holds no keys with values: it is no config")};
  std::vector<Said> all;
  flatten(object, "", kMostLevels, all);
  const ForeignTool* const tool = tool_of(all, options.tool);
  if (tool == nullptr)
    return Error{Code::kConfig,
                 text(where, ": none of its ", counted(std::ssize(all), "key"),
                      " is one of torchtitan, torchrun, accelerate, axolotl, DeepSpeed, TRL or "
                      "nanoGPT; --from TOOL says whose it is")};
  Conversion conversion(*tool, options);
  for (const Said& said : all) conversion.take(said);
  return conversion.finish(where);
}

}  // namespace lockstep::cli
