// What the table of keys says as text: values, limits, and the lines of a run's identity.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <type_traits>
#include <utility>

#include "base/json.h"
#include "base/text.h"
#include "config/config.h"
#include "config/config_field.h"
#include "config/config_words.h"

namespace lockstep {
inline namespace base {
namespace {

std::string number_text(double value) {
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  return std::string(buffer, end);
}

std::string join(const std::vector<std::string>& words, const char* between) {
  std::string out;
  for (size_t i = 0; i < words.size(); ++i) out += (i == 0 ? "" : between) + words[i];
  return out;
}

// The table is written for mutable configs; reading through it does not write.
template <typename Visitor>
auto visit_value(const Config& config, const ConfigField& field, Visitor visitor) {
  return std::visit(
      [&](auto member) { return visitor(std::as_const(*member(const_cast<Config&>(config)))); },
      field.member);
}

std::string quoted_if_empty(const std::string& word) { return word.empty() ? "\"\"" : word; }

// An item of a list, in quotes where it would not be read back without them.
std::string item_text(const std::string& item) {
  const auto is_blank = [](char c) { return c == ' ' || c == '\t'; };
  const bool plain = !item.empty() && !is_blank(item.front()) && !is_blank(item.back()) &&
                     std::string_view("\"'[").find(item.front()) == std::string_view::npos &&
                     item.back() != ']' && item.find(',') == std::string::npos;
  return plain ? item : dump_json(nlohmann::json(item));
}

// May it change a bit, and does this run read it? Where a run starts from says nothing in one that
// starts from its own seed, nor Muon's keys in one of AdamW alone. A run with moments in fp32 has
// the identity that it had before there were others.
bool is_in_identity(const ConfigField& field, const Config& config) {
  const std::string_view key = field.key;
  const bool of_initial_load = key.starts_with("initial_load") || key == "exclude_from_loading";
  if (of_initial_load && config.checkpoint.initial_load_path.empty()) return false;
  if (key == "momentum" && config.optimizer.name != OptimizerKind::kMuon) return false;
  if (key == "state_dtype" && config.optimizer.state_dtype == FloatType::kFloat32) return false;
  return field.bits == Bits::kMayChange;
}

// Neutral, but a rank that has another value would wait for what the others do not do.
bool is_common(const ConfigField& field) {
  static const std::vector<std::string> names{"model.init",
                                              "model.ignore_fields",
                                              "training.epochs",
                                              "training.steps",
                                              "checkpoint.enable",
                                              "checkpoint.folder",
                                              "checkpoint.interval",
                                              "checkpoint.codec",
                                              "checkpoint.ephemeral_interval",
                                              "checkpoint.keep_best",
                                              "checkpoint.when_busy",
                                              "checkpoint.buddy",
                                              "checkpoint.memory_interval",
                                              "checkpoint.outage_minutes",
                                              "checkpoint.ranks_per_file",
                                              "checkpoint.strict_identity",
                                              "data.on_change"};
  const std::string_view section = field.section;
  return section == "parallelism" || section == "validation" || section == "audit" ||
         std::find(names.begin(), names.end(), field.name()) != names.end();
}

}  // namespace

std::vector<std::string> words_of(const ConfigField& field) {
  return visit_value(Config{}, field, [](const auto& value) {
    using T = std::decay_t<decltype(value)>;
    std::vector<std::string> words;
    if constexpr (Choice<T>) words.assign(kWords<T>.begin(), kWords<T>.end());
    return words;
  });
}

const char* type_name(const ConfigField& field) {
  return visit_value(Config{}, field, [](const auto& value) {
    using T = std::decay_t<decltype(value)>;
    if constexpr (std::is_same_v<T, bool>)
      return "boolean";
    else if constexpr (std::is_same_v<T, int64_t>)
      return "integer";
    else if constexpr (std::is_same_v<T, double>)
      return "number";
    else if constexpr (std::is_same_v<T, std::vector<int64_t>>)
      return "list of integers";
    else if constexpr (std::is_same_v<T, std::vector<std::string>>)
      return "list of strings";
    else
      return "string";
  });
}

std::string value_text(const Config& config, const ConfigField& field) {
  return visit_value(config, field, [](const auto& value) -> std::string {
    using T = std::decay_t<decltype(value)>;
    if constexpr (std::is_same_v<T, bool>)
      return value ? "true" : "false";
    else if constexpr (std::is_same_v<T, int64_t>)
      return std::to_string(value);
    else if constexpr (std::is_same_v<T, double>)
      return number_text(value);
    else if constexpr (std::is_same_v<T, std::string>)
      return value;
    else if constexpr (Choice<T>)
      return std::string(word_of(value));
    else {
      std::vector<std::string> words;
      for (const auto& item : value) words.push_back(item_text(text(item)));
      return join(words, ",");
    }
  });
}

std::string limits_text(const ConfigField& field) {
  const ConfigLimits& limits = field.limits;
  if (std::vector<std::string> words = words_of(field); !words.empty()) {
    for (std::string& word : words) word = quoted_if_empty(word);
    return "one of: " + join(words, ", ");
  }
  const bool has_min = std::isfinite(limits.min);
  const bool has_max = std::isfinite(limits.max) && limits.max < kMaxConfigCount;
  if (has_min && has_max && !limits.above_min)
    return number_text(limits.min) + " to " + number_text(limits.max);
  if (has_min) return (limits.above_min ? "> " : ">= ") + number_text(limits.min);
  return "";
}

std::string config_json(const Config& config) {
  const Config whole = resolved(config);
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const ConfigField& field : config_fields())
    visit_value(whole, field, [&](const auto& value) { json[field.section][field.key] = value; });
  // A description may hold any bytes; JSON may not.
  return dump_json(json, 2);
}

std::vector<std::string> config_words(const Config& config) {
  std::vector<std::string> words;
  for (const ConfigField& field : config_fields()) {
    const std::string value = value_text(config, field);
    const bool epochs_say_it = config.training.epochs > 0 && field.name() == "training.steps";
    if (value != value_text(Config{}, field) && !epochs_say_it)
      words.push_back(text("--", field.name(), "=", value));
  }
  return words;
}

std::vector<std::string> identity_lines(const Config& config) {
  const Config whole = resolved(config);
  std::vector<std::string> lines;
  for (const ConfigField& field : config_fields())
    if (is_in_identity(field, whole))
      lines.push_back(field.name() + "=" + value_text(whole, field));
  std::sort(lines.begin(), lines.end());
  return lines;
}

std::vector<std::string> common_lines(const Config& config) {
  const Config whole = resolved(config);
  std::vector<std::string> lines = identity_lines(config);
  for (const ConfigField& field : config_fields())
    if (field.bits == Bits::kSame && is_common(field))
      lines.push_back(field.name() + "=" + value_text(whole, field));
  std::sort(lines.begin(), lines.end());
  return lines;
}

const char* retired_key(std::string_view name) {
  if (name == "checkpoint.max_failures")
    return "use checkpoint.outage_minutes, the time for which saves may fail";
  return nullptr;
}

}  // namespace base
}  // namespace lockstep
