#include "data/tokenizer/side_files.h"

#include <algorithm>

#include "base/json.h"
#include "base/text.h"

namespace lockstep::data {
namespace {

using nlohmann::json;

constexpr const char* kConfigFile = "tokenizer_config.json";
constexpr const char* kMapFile = "special_tokens_map.json";
constexpr const char* kAddedFile = "added_tokens.json";

Result<json> object_of(const std::string& contents, const char* name) {
  if (contents.empty()) return json::object();
  json object = parse_json(contents, /*allow_exceptions=*/false);
  if (!object.is_object()) return Error{Code::kConfig, text(name, " is not a JSON object")};
  return object;
}

// Of a token's name: itself, or the content of an object.
const json& content_of(const json& value) {
  return value.is_object() && value.contains("content") ? value["content"] : value;
}

// A token's name: a string, or an object with content. null is none.
Result<void> read_name(const json& object, const char* file, const char* key,
                       std::optional<SideWords::Name>& name) {
  if (name || !object.contains(key) || object[key].is_null()) return {};
  const json& value = object[key];
  const json& content = content_of(value);
  if (!content.is_string())
    return Error{Code::kConfig, text(file, ": ", key, " = ", dump_json(value), " is no token")};
  name = SideWords::Name{content.get<std::string>(), file};
  return {};
}

Result<void> read_flag(const json& config, const char* key, std::optional<bool>& flag) {
  if (!config.contains(key) || config[key].is_null()) return {};
  if (!config[key].is_boolean())
    return Error{Code::kConfig, text(kConfigFile, ": ", key, " must be true or false")};
  flag = config[key].get<bool>();
  return {};
}

std::optional<uint32_t> id_in(const json& value) {
  if (!value.is_number_integer() || value.get<int64_t>() < 0 ||
      value.get<int64_t>() > int64_t{0xfffffffe})
    return std::nullopt;
  return static_cast<uint32_t>(value.get<int64_t>());
}

bool is_true(const json& object, const char* key, bool otherwise) {
  return object.contains(key) && object[key].is_boolean() ? object[key].get<bool>() : otherwise;
}

// {"32000": {"content": "<pad>", "special": true, …}, …}
Result<void> read_decoder(const json& decoder, std::vector<AddedToken>& tokens) {
  const Error wrong{Code::kConfig,
                    text(kConfigFile, ": added_tokens_decoder is not a list of tokens by id")};
  if (!decoder.is_object()) return wrong;
  for (const auto& [key, one] : decoder.items()) {
    const auto id = id_in(parse_json(key, /*allow_exceptions=*/false));
    if (!id || !one.is_object() || !one.contains("content") || !one["content"].is_string())
      return wrong;
    AddedToken token;
    token.id = *id;
    token.content = one["content"].get<std::string>();
    token.special = is_true(one, "special", false);
    token.normalized = is_true(one, "normalized", !token.special);
    token.single_word = is_true(one, "single_word", false);
    token.strips_left = is_true(one, "lstrip", false);
    token.strips_right = is_true(one, "rstrip", false);
    tokens.push_back(std::move(token));
  }
  return {};
}

// {"<pad>": 32000, …}. Those that a name stands for are special.
Result<void> read_added(const json& list, const std::vector<std::string>& special,
                        std::vector<AddedToken>& tokens) {
  for (const auto& [content, value] : list.items()) {
    const auto id = id_in(value);
    if (!id)
      return Error{Code::kConfig,
                   text(kAddedFile, ": \"", content, "\" = ", dump_json(value), " is no id")};
    const bool is_special = std::find(special.begin(), special.end(), content) != special.end();
    tokens.push_back(
        {.id = *id, .content = content, .special = is_special, .normalized = !is_special});
  }
  return {};
}

// The names of all special tokens: "eos_token", "additional_special_tokens" and the like.
std::vector<std::string> special_names(const json& map, const json& config) {
  std::vector<std::string> names;
  const auto add = [&](const json& value) {
    const json& content = content_of(value);
    if (content.is_string()) names.push_back(content.get<std::string>());
  };
  for (const json* object : {&map, &config})
    for (const auto& [key, value] : object->items()) {
      if (key.ends_with("_token")) add(value);
      if (key.ends_with("special_tokens") && value.is_array())
        for (const json& one : value) add(one);
    }
  return names;
}

}  // namespace

Result<SideWords> read_side_files(const SideFiles& files) {
  LOCKSTEP_TRY(const json config, object_of(files.tokenizer_config, kConfigFile));
  LOCKSTEP_TRY(const json map, object_of(files.special_tokens_map, kMapFile));
  LOCKSTEP_TRY(const json added, object_of(files.added_tokens, kAddedFile));
  SideWords words;
  const bool decodes = config.contains("added_tokens_decoder");
  const std::pair<const json*, const char*> order[] = {{&map, kMapFile}, {&config, kConfigFile}};
  for (const size_t i : {decodes ? 1 : 0, decodes ? 0 : 1}) {
    LOCKSTEP_RETURN_IF_ERROR(read_name(*order[i].first, order[i].second, "eos_token", words.eos));
    LOCKSTEP_RETURN_IF_ERROR(read_name(*order[i].first, order[i].second, "bos_token", words.bos));
  }
  LOCKSTEP_RETURN_IF_ERROR(read_flag(config, "add_bos_token", words.add_bos));
  LOCKSTEP_RETURN_IF_ERROR(read_flag(config, "add_prefix_space", words.add_prefix_space));
  if (config.contains("tokenizer_class") && config["tokenizer_class"].is_string())
    words.tokenizer_class = config["tokenizer_class"].get<std::string>();
  if (words.tokenizer_class.ends_with("Fast"))
    words.tokenizer_class.resize(words.tokenizer_class.size() - 4);
  LOCKSTEP_RETURN_IF_ERROR(decodes
                               ? read_decoder(config["added_tokens_decoder"], words.added_tokens)
                               : read_added(added, special_names(map, config), words.added_tokens));
  std::sort(words.added_tokens.begin(), words.added_tokens.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  return words;
}

}  // namespace lockstep::data
