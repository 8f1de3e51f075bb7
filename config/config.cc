// From TOML text and flags to a Config.
#include "config/config.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <optional>
#include <type_traits>
#include <utility>

#include "base/text.h"
#include "config/config_field.h"
#include "config/foreign_keys.h"
#include "config/list_words.h"
#include "config/toml_file.h"

namespace lockstep {
inline namespace base {
namespace {

Error config_error(std::string message) { return {Code::kConfig, std::move(message)}; }

std::string with_underscores(std::string_view word) {
  std::string out(word);
  std::replace(out.begin(), out.end(), '-', '_');
  return out;
}

std::vector<std::string> section_names() {
  std::vector<std::string> names;
  for (const ConfigField& field : config_fields())
    if (names.empty() || names.back() != field.section) names.push_back(field.section);
  return names;
}

// The full name that somebody who typed `section`.`key` may have meant, or "". `section` may be
// empty.
std::string suggestion(const std::string& section, const std::string& key) {
  std::vector<std::string> same_section, all;
  for (const ConfigField& field : config_fields()) {
    if (field.section == section) same_section.push_back(field.key);
    all.push_back(field.name());
  }
  if (const std::string found = nearest(key, same_section); !found.empty())
    return section + "." + found;
  for (const ConfigField& field : config_fields())
    if (field.key == key) return field.name();
  for (const ConfigAlias& alias : config_aliases())
    if (alias.alias == key) return alias.name;
  if (!section.empty()) return nearest(section + "." + key, all);
  std::vector<std::string> keys;
  for (const ConfigField& field : config_fields()) keys.push_back(field.key);
  const std::string found = nearest(key, keys);
  for (const ConfigField& field : config_fields())
    if (field.key == found) return field.name();
  const auto sections = section_names();
  if (std::find(sections.begin(), sections.end(), key) != sections.end()) return "";
  std::vector<std::string> longer;  // that begin with `key`: nproc_per_node of --nproc
  for (const ConfigField& field : config_fields())
    if (std::string_view(field.key).starts_with(key + "_")) longer.push_back(field.name());
  return longer.size() == 1 ? longer.front() : "";
}

std::string did_you_mean(const std::string& found, const char* before = "") {
  return found.empty() ? "" : text("; did you mean ", before, found, "?");
}

// Where something was read: a line of the file, or behind all of them a word of the command line.
struct Origin {
  int64_t line = 0;
  std::string where;  // "run.toml:7: "; "" of the command line
};
constexpr int64_t kBehindTheFile = std::numeric_limits<int64_t>::max();

struct Mistake {
  int64_t line = 0;
  std::string message;
};

// What was read so far, and what was wrong. An unknown choice is an error unless a later value for
// the same key overrides it.
struct Draft {
  ParsedConfig parsed;
  std::vector<Mistake> mistakes = {};
  std::map<const ConfigField*, std::pair<Origin, std::string>> wrong_words = {};
  std::map<const ConfigField*, Origin> given = {};
  bool foreign_in_file = false;  // a key of another tool

  void note(int64_t line, const Error& error) { mistakes.push_back({line, error.message}); }
};

// How a value is written: a choice as a word, everything else as itself.
template <typename T>
using Written = std::conditional_t<Choice<T>, std::string, T>;

// Other tools' words for our strategies.
std::string_view own_strategy(std::string_view word) {
  return word == "fsdp" ? "full_shard" : word == "hybrid_shard" ? "hybrid" : word;
}

template <typename T>
void assign(Draft& draft, const ConfigField& field, const Origin& origin, T& place,
            Written<T> value) {
  draft.given[&field] = origin;
  if constexpr (Choice<T>) {
    draft.wrong_words.erase(&field);
    constexpr bool kStrategy = std::is_same_v<T, ShardingStrategy>;
    if (const auto choice = choice_of<T>(kStrategy ? own_strategy(value) : value))
      place = *choice;
    else
      draft.wrong_words[&field] = {origin, std::move(value)};
  } else {
    place = std::move(value);
  }
}

// --- flags -------------------------------------------------------------------------------------

template <typename T>
std::optional<T> number_from(std::string_view word) {
  if (word.starts_with('+')) word.remove_prefix(1);
  T value{};
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return value;
}

std::optional<bool> bool_from(std::string word) {
  std::transform(word.begin(), word.end(), word.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  if (word == "true" || word == "1" || word == "yes" || word == "on") return true;
  if (word == "false" || word == "0" || word == "no" || word == "off") return false;
  return std::nullopt;
}

std::optional<std::vector<int64_t>> numbers_from(const std::string& word) {
  const auto items = list_words(word);
  if (!items) return std::nullopt;
  std::vector<int64_t> list;
  for (const std::string& item : *items) {
    const auto value = number_from<int64_t>(item);
    if (!value) return std::nullopt;
    list.push_back(*value);
  }
  return list;
}

template <typename T>
std::optional<T> value_from(const std::string& word) {
  if constexpr (std::is_same_v<T, bool>)
    return bool_from(word);
  else if constexpr (std::is_arithmetic_v<T>)
    return number_from<T>(word);
  else if constexpr (std::is_same_v<T, std::vector<int64_t>>)
    return numbers_from(word);
  else if constexpr (std::is_same_v<T, std::vector<std::string>>)
    return list_words(word);
  else
    return word;
}

Result<void> set_from_word(Draft& draft, const ConfigField& field, const std::string& flag,
                           const std::string& word) {
  const auto set = [&](auto member) -> Result<void> {
    auto& place = *member(draft.parsed.config);
    auto value = value_from<Written<std::decay_t<decltype(place)>>>(word);
    if (!value)
      return config_error(text(flag, ": \"", word, "\" is not of the right type; ", field.name(),
                               " must be of type ", type_name(field)));
    assign(draft, field, {kBehindTheFile, ""}, place, *std::move(value));
    return {};
  };
  return std::visit(set, field.member);
}

struct NamedField {
  const ConfigField* field = nullptr;
  bool negated = false;                // --section.no_key
  const ConfigAlias* words = nullptr;  // a key of words typed as a boolean
  bool is_bool() const { return words != nullptr || field->is_bool(); }
};

NamedField find_flag(std::string name) {
  for (const ConfigAlias& alias : config_aliases()) {
    const bool negated = name == std::string("no_") + alias.alias;
    if (name != alias.alias && !negated) continue;
    name = alias.name;
    if (alias.on != nullptr) {
      const size_t dot = name.find('.');
      return {find_config_field(name.substr(0, dot), name.substr(dot + 1)), negated, &alias};
    }
    if (negated) name.insert(name.find('.') + 1, "no_");  // no_alias -> section.no_key
    break;
  }
  const size_t dot = name.find('.');
  if (dot == std::string::npos) return {};
  const std::string section = name.substr(0, dot), key = name.substr(dot + 1);
  if (const ConfigField* field = find_config_field(section, key)) return {field, false};
  if (!key.starts_with("no_")) return {};
  const ConfigField* field = find_config_field(section, key.substr(3));
  if (field == nullptr || !field->is_bool()) return {};
  return {field, true};
}

Error unknown_flag(const std::string& flag, const std::string& name) {
  if (const char* const instead = retired_key(name))
    return config_error(text(flag, ": this key was removed; ", instead));
  if (const std::string words = foreign_flag_words(name); !words.empty())
    return config_error(text(flag, ": ", words));
  if (const std::string words = foreign_key_words(name); !words.empty())
    return config_error(text(flag, ": ", words));
  const size_t dot = name.find('.');
  std::string meant;
  if (dot == std::string::npos) {
    std::vector<std::string> aliases;
    for (const ConfigAlias& alias : config_aliases()) aliases.push_back(alias.alias);
    meant = suggestion("", name);
    if (meant.empty() || !meant.ends_with("." + name)) {
      if (const std::string alias = nearest(name, aliases); !alias.empty()) meant = alias;
    }
  } else {
    meant = suggestion(name.substr(0, dot), name.substr(dot + 1));
  }
  return config_error(text(flag, ": unknown option", did_you_mean(meant, "--")));
}

// A value that looks like a boolean's and stands where words that are not values stand.
Error boolean_word(const NamedField& named, const std::string& flag, const std::string& word) {
  if (named.negated) return config_error(text(flag, " takes no value"));
  const std::string off = named.words ? text("--no_", named.words->alias)
                                      : text("--", named.field->section, ".no_", named.field->key);
  return config_error(text(flag, " ", word, ": give the value of a boolean as ", flag, "=true or ",
                           flag, "=false; ", off, " also means false"));
}

// The flag at `arguments[i]`, with its value; `i` is left at the last word of both.
Result<void> apply_flag(Draft& draft, const std::vector<std::string>& arguments, size_t& i) {
  const std::string& argument = arguments[i];
  const size_t equals = argument.find('=');
  const std::string flag = argument.substr(0, equals);
  const std::string name = with_underscores(std::string_view(flag).substr(2));
  const NamedField named = find_flag(name);
  const auto [field, negated, words] = named;
  if (field == nullptr) return unknown_flag(flag, name);

  std::optional<std::string> word;
  if (equals != std::string::npos) {
    word = argument.substr(equals + 1);
  } else if (i + 1 < arguments.size() && !arguments[i + 1].starts_with("--")) {
    // A boolean takes the next word only when it is plainly meant for it.
    const std::string& next = arguments[i + 1];
    if (!named.is_bool() || (!negated && (next == "true" || next == "false"))) {
      word = next;
      ++i;
    } else if (named.is_bool() && bool_from(next)) {
      return boolean_word(named, flag, next);
    }
  }
  if (named.is_bool() && !word)
    word = negated ? "false" : "true";
  else if (negated)
    return config_error(text(flag, " takes no value"));
  if (words != nullptr && (word == "true" || word == "false"))
    word = word == "true" ? words->on : words->off;
  if (!word) return config_error(text(flag, " needs a value of type ", type_name(*field)));
  return set_from_word(draft, *field, flag, *word);
}

void apply_flags(Draft& draft, const std::vector<std::string>& arguments) {
  std::vector<std::string>& positional = draft.parsed.positional;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].starts_with("--")) {
      positional.push_back(arguments[i]);
    } else if (arguments[i] == "--") {  // what follows is not for us
      positional.insert(positional.end(), arguments.begin() + i + 1, arguments.end());
      return;
    } else if (const auto applied = apply_flag(draft, arguments, i); !applied) {
      draft.note(kBehindTheFile, applied.error());
    }
  }
}

// --- TOML --------------------------------------------------------------------------------------

template <typename T>
constexpr bool kIsList = false;
template <typename T>
constexpr bool kIsList<std::vector<T>> = true;

template <typename T>
std::optional<std::vector<T>> list_from(const toml::node& node) {
  if (const auto one = node.value_exact<T>()) return std::vector<T>{*one};
  const toml::array* array = node.as_array();
  if (array == nullptr || array->size() > kMaxListLength) return std::nullopt;
  std::vector<T> list;
  for (const toml::node& item : *array) {
    const auto value = item.value_exact<T>();
    if (!value) return std::nullopt;
    list.push_back(*value);
  }
  return list;
}

template <typename T>
std::optional<T> value_from(const toml::node& node) {
  if constexpr (std::is_same_v<T, double>)
    if (const auto whole = node.value_exact<int64_t>()) return static_cast<double>(*whole);
  if constexpr (kIsList<T>)
    return list_from<typename T::value_type>(node);
  else
    return node.value_exact<T>();
}

Result<void> set_from_node(Draft& draft, const ConfigField& field, const Origin& origin,
                           const toml::node& node) {
  const auto set = [&](auto member) -> Result<void> {
    auto& place = *member(draft.parsed.config);
    using T = std::decay_t<decltype(place)>;
    auto value = value_from<Written<T>>(node);
    if (!value)
      return config_error(
          text(origin.where, field.name(), " is of type ",
               kIsList<T> && node.is_array() ? "array of other values" : text(node.type()),
               ", but it must be of type ", type_name(field)));
    assign(draft, field, origin, place, *std::move(value));
    return {};
  };
  return std::visit(set, field.member);
}

Origin origin_of(const std::filesystem::path& path, const toml::key& key) {
  return {key.source().begin.line, place(path, key.source()) + ": "};
}

Error foreign(Draft& draft, const Origin& origin, const std::string& name,
              const std::string& words) {
  draft.foreign_in_file = true;
  return config_error(text(origin.where, name, ": ", words));
}

// Notes each key of a section that is another tool's alone. False: one of them is no tool's.
bool note_foreign_keys(Draft& draft, const std::filesystem::path& path, const std::string& section,
                       const toml::table& keys) {
  std::vector<Mistake> found;
  for (const auto& [key, node] : keys) {
    const std::string name = section + "." + with_underscores(key.str());
    const std::string words = foreign_key_words(name);
    if (words.empty()) return false;
    const Origin origin = origin_of(path, key);
    found.push_back({origin.line, foreign(draft, origin, name, words).message});
  }
  draft.mistakes.insert(draft.mistakes.end(), found.begin(), found.end());
  return !keys.empty();
}

Result<void> apply_key(Draft& draft, const std::string& section, const toml::key& key,
                       const toml::node& node, const Origin& origin) {
  const std::string name = with_underscores(key.str());
  if (const ConfigField* field = find_config_field(section, name))
    return set_from_node(draft, *field, origin, node);
  if (const char* const instead = retired_key(section + "." + name))
    return config_error(
        text(origin.where, section, ".", name, ": this key was removed; ", instead));
  if (const std::string words = foreign_key_words(section + "." + name); !words.empty())
    return foreign(draft, origin, section + "." + std::string(key.str()), words);
  return config_error(text(origin.where, "unknown key ", section, ".", key.str(),
                           did_you_mean(suggestion(section, name))));
}

Result<void> apply_section(Draft& draft, const std::filesystem::path& path, const toml::key& key,
                           const toml::node& node) {
  static const std::vector<std::string> sections = section_names();
  const std::string where = origin_of(path, key).where;
  const std::string section = with_underscores(key.str());
  const toml::table* keys = node.as_table();
  if (std::find(sections.begin(), sections.end(), section) == sections.end()) {
    const std::string words = keys == nullptr ? foreign_key_words(section) : "";
    if (!words.empty()) return foreign(draft, origin_of(path, key), section, words);
    if (keys != nullptr && note_foreign_keys(draft, path, section, *keys)) return {};
    if (keys == nullptr)
      return config_error(text(where, "the key ", key.str(), " stands outside of any [section]",
                               did_you_mean(suggestion("", section))));
    return config_error(
        text(where, "unknown section [", key.str(), "]", did_you_mean(nearest(section, sections))));
  }
  if (keys == nullptr)
    return config_error(text(where, section, " is of type ", text(node.type()),
                             ", but it must be a section: [", section, "]"));
  for (const auto& [name, value] : *keys) {
    const Origin origin = origin_of(path, name);
    if (const auto applied = apply_key(draft, section, name, value, origin); !applied)
      draft.note(origin.line, applied.error());
  }
  return {};
}

Result<void> apply_toml(Draft& draft, const std::filesystem::path& path) {
  auto read = read_toml(path);
  const std::string kind = path.extension().string();
  if (!read.ok() && read.error().code == Code::kConfig &&
      (kind == ".yaml" || kind == ".yml" || kind == ".json"))
    return config_error(text(read.error().message, "; a config is TOML: `lockstep convert-config ",
                             path.string(), "` writes what is in this file as TOML"));
  if (!read.ok()) return read.error();
  const toml::table& parsed = read.value();
  for (const auto& [key, node] : parsed)
    if (const auto applied = apply_section(draft, path, key, node); !applied)
      draft.note(origin_of(path, key).line, applied.error());
  return {};
}

// All at once, in the order of the file's lines; then those of the command line.
Error error_of(std::vector<Mistake> mistakes) {
  std::stable_sort(mistakes.begin(), mistakes.end(),
                   [](const Mistake& a, const Mistake& b) { return a.line < b.line; });
  std::string all;
  for (const Mistake& mistake : mistakes) all += (all.empty() ? "" : "\n") + mistake.message;
  return config_error(all);
}

// Steps have a default, so what was given is known here alone. Epochs of the command line come
// before steps of the file: nothing could take those back.
void check_steps_or_epochs(Draft& draft) {
  const Config::Training& training = draft.parsed.config.training;
  const auto steps = draft.given.find(find_config_field("training", "steps"));
  const auto epochs = draft.given.find(find_config_field("training", "epochs"));
  if (training.epochs <= 0 || steps == draft.given.end()) return;
  const bool in_one_file = steps->second.line < kBehindTheFile;
  if (in_one_file && epochs->second.line == kBehindTheFile) return;
  draft.mistakes.push_back(
      {epochs->second.line,
       text(epochs->second.where, "training.epochs = ", training.epochs,
            " sets the number of steps, and training.steps = ", training.steps,
            in_one_file ? text(" in line ", steps->second.line) : " of the command line",
            " sets it too; give only one of them, or --training.epochs 0")});
}

}  // namespace

std::vector<std::string> positional_words(const std::vector<std::string>& arguments) {
  Draft draft;
  apply_flags(draft, arguments);
  return draft.parsed.positional;
}

Result<ParsedConfig> parse_config(const std::filesystem::path& toml_path,
                                  const std::vector<std::string>& arguments) {
  Draft draft;
  if (!toml_path.empty()) LOCKSTEP_RETURN_IF_ERROR(apply_toml(draft, toml_path));
  apply_flags(draft, arguments);
  for (const ConfigField& field : config_fields())
    if (const auto wrong = draft.wrong_words.find(&field); wrong != draft.wrong_words.end()) {
      const auto& [origin, word] = wrong->second;
      draft.mistakes.push_back({origin.line, origin.where + wrong_value(field, word).message});
    }
  check_steps_or_epochs(draft);
  for (const auto& [field, origin] : draft.given) draft.parsed.places[field->name()] = origin.where;
  if (draft.mistakes.empty()) return std::move(draft.parsed);
  for (const auto& [field, origin] : draft.given)
    if (const auto kept = check_limits(draft.parsed.config, *field);
        !kept && !draft.wrong_words.contains(field))
      draft.mistakes.push_back({origin.line, origin.where + kept.error().message});
  Error error = error_of(std::move(draft.mistakes));
  if (draft.foreign_in_file)
    error.message += text("\n`lockstep convert-config ", toml_path.string(),
                          "` writes it with the keys of lockstep; docs/MIGRATING.md says what "
                          "differs");
  return error;
}

}  // namespace base
}  // namespace lockstep
