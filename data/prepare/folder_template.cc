#include "data/prepare/folder_template.h"

#include <array>

#include "base/json.h"
#include "base/text.h"

namespace lockstep::data {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kConfigFile = "tokenizer_config.json";
constexpr std::array kTokenNames = {"bos_token", "eos_token", "unk_token", "sep_token",
                                    "pad_token", "cls_token", "mask_token"};

// An empty object where there is no such file.
Result<json> object_of(FileSystem& file_system, const fs::path& file) {
  if (!file_system.exists(file)) return json::object();
  LOCKSTEP_TRY(const std::string contents, read_file(file_system, file));
  json object = parse_json(contents, /*allow_exceptions=*/false);
  if (object.is_object()) return object;
  return Error{Code::kConfig, text(file.string(), " is not a JSON object")};
}

// "chat_template" is a text, or a list of named ones. "": the file has no template.
Result<std::string> template_in(const json& config, const fs::path& file) {
  const json found = config.value("chat_template", json());
  if (found.is_null()) return std::string();
  if (found.is_string()) return found.get<std::string>();
  for (const json& each : found)
    if (each.is_object() && each.value("name", json()) == "default" && each.contains("template") &&
        each["template"].is_string())
      return each["template"].get<std::string>();
  return Error{
      Code::kConfig,
      text(file.string(), ": \"chat_template\" must be a string, or a list with a \"default\"")};
}

// Where both files name a token, the first one counts; the order is side_files.h's.
Result<std::string> tokens_of_folder(FileSystem& file_system, const fs::path& folder) {
  LOCKSTEP_TRY(json first, object_of(file_system, folder / "special_tokens_map.json"));
  LOCKSTEP_TRY(json second, object_of(file_system, folder / kConfigFile));
  if (second.contains("added_tokens_decoder")) std::swap(first, second);
  json tokens = json::object();
  for (const char* const name : kTokenNames)
    for (const json* const object : {&first, &second}) {
      json token = object->value(name, json());
      if (token.is_object()) token = token.value("content", json());
      if (token.is_string() && !tokens.contains(name)) tokens[name] = token;
    }
  return dump_json(tokens);
}

Result<FolderTemplate> text_of_folder(FileSystem& file_system, const fs::path& folder) {
  if (const fs::path file = folder / kTemplateFile; file_system.exists(file)) {
    LOCKSTEP_TRY(std::string jinja, read_file(file_system, file));
    return FolderTemplate{file, std::move(jinja), ""};
  }
  for (const char* const name : {kConfigFile, "chat_template.json"}) {
    const fs::path file = folder / name;
    LOCKSTEP_TRY(const json config, object_of(file_system, file));
    LOCKSTEP_TRY(std::string jinja, template_in(config, file));
    if (!jinja.empty()) return FolderTemplate{file, std::move(jinja), ""};
  }
  return Error{Code::kNotFound, text(folder.string(),
                                     " has no chat template (chat_template.jinja, or "
                                     "\"chat_template\" in tokenizer_config.json)")};
}

}  // namespace

Result<FolderTemplate> chat_template_of_folder(FileSystem& file_system, const fs::path& tokenizer) {
  fs::path folder = tokenizer;
  if (!file_system.list(folder).ok()) folder = folder.parent_path();
  LOCKSTEP_TRY(FolderTemplate found, text_of_folder(file_system, folder));
  LOCKSTEP_TRY(found.tokens, tokens_of_folder(file_system, folder));
  return found;
}

}  // namespace lockstep::data
