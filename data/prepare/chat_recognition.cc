#include "data/prepare/chat_recognition.h"

#include <algorithm>
#include <cctype>
#include <vector>

#include "base/json.h"
#include "base/text.h"
#include "data/prepare/chat_jinja.h"
#include "data/prepare/chat_template.h"

namespace lockstep::data {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kAuto = "auto";

struct Signs {
  const char* name;
  std::vector<const char*> has, has_not;
};

// Line ends are written out (plain()). One of them fits at most: each leaves out what tells the
// others apart.
const std::vector<Signs>& all_signs() {
  static const std::vector<Signs> signs = {
      {"chatml",
       {"<|im_start|>", "<|im_end|>", "message"},
       {"You are", "tool", "think", "| trim", "|trim", "strip()"}},
      {"qwen2",
       {"<|im_start|>system\nYou are a helpful assistant.<|im_end|>"},
       {"tool", "think", "| trim", "|trim", "strip()"}},
      {"qwen2.5",
       {"<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful "
        "assistant.<|im_end|>",
        "# Tools\n\nYou may call one or more functions", "<tool_response>",
        "tool_call.arguments | tojson"},
       {"think"}},
      {"qwen3",
       {"<|im_start|>", "# Tools\n\nYou may call one or more functions", "<tool_response>",
        "last_query_index", "loop.last", "<think>\n", "</think>\n\n", "tool_call.arguments"},
       {"You are Qwen", "You are a helpful", "<|im_start|>assistant\n<think>"}},
      {"llama3",
       {"<|start_header_id|>", "<|end_header_id|>\n\n", "<|eot_id|>", "trim"},
       {"tool", "Cutting Knowledge", "You are"}},
      {"llama3.1",
       {"<|start_header_id|>", "<|eot_id|>", "Cutting Knowledge Date: December 2023\n",
        "\"26 Jul 2024\"", "Environment: ipython\n", "tools_in_user_message", "tojson(indent=4)",
        "\"parameters\": "},
       {"strftime_now"}},
      {"mistral",
       {"[INST]", "[/INST]", "eos_token"},
       {"[INST] ", " [/INST]", "<<SYS>>", "[SYSTEM_PROMPT]", "[TOOL_CALLS] ", "[TOOL_RESULTS] "}},
      {"gemma",
       {"<start_of_turn>", "<end_of_turn>\n", "System role not supported", "trim"},
       {"tool"}},
      {"gemma3",
       {"<start_of_turn>", "<end_of_turn>\n", "first_user_prefix", "trim"},
       {"System role not supported", "tool"}},
      {"zephyr", {"<|user|>\n", "<|assistant|>\n", "<|system|>\n", "eos_token"}, {"tool", "trim"}},
  };
  return signs;
}

// What the texts hold that looks like a special token, and is one that the families write.
const std::vector<std::string>& known_marks() {
  static const std::vector<std::string> marks = {
      "<|im_start|>",   "<|im_end|>",        "<|start_header_id|>", "<|end_header_id|>",
      "<|eot_id|>",     "<|eom_id|>",        "<|python_tag|>",      "<|begin_of_text|>",
      "<|user|>",       "<|assistant|>",     "<|system|>",          "[INST]",
      "[/INST]",        "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]",  "[TOOL_CALLS]",
      "[TOOL_RESULTS]", "[/TOOL_RESULTS]"};
  return marks;
}

// \n in a string of Jinja as the line end that it is; \" as ".
std::string plain(std::string_view jinja) {
  std::string out;
  for (size_t i = 0; i < jinja.size(); ++i) {
    const char next = i + 1 < jinja.size() ? jinja[i + 1] : '\0';
    if (jinja[i] == '\r') continue;
    if (jinja[i] == '\\' && (next == 'n' || next == '"')) {
      out += next == 'n' ? '\n' : '"';
      ++i;
    } else {
      out += jinja[i];
    }
  }
  return out;
}

// "<|name|>" or "[NAME]", with "/" before it too, where one starts at `at`; else "".
std::string mark_at(const std::string& text, size_t at) {
  const bool angled = text.compare(at, 2, "<|") == 0;
  if (!angled && text[at] != '[') return "";
  size_t i = at + (angled ? 2 : 1);
  if (!angled && i < text.size() && text[i] == '/') ++i;
  const size_t name = i;
  const auto is_sign = [angled](unsigned char c) {
    return c == '_' || (angled ? std::isalnum(c) : std::isupper(c)) != 0;
  };
  while (i < text.size() && is_sign(static_cast<unsigned char>(text[i]))) ++i;
  const std::string end = angled ? "|>" : "]";
  const bool is_mark = i > name + 1 && text.compare(i, end.size(), end) == 0;
  return is_mark ? text.substr(at, i + end.size() - at) : "";
}

std::string first_unknown_mark(const std::string& text) {
  const std::vector<std::string>& known = known_marks();
  for (size_t at = text.find_first_of("<["); at != text.npos; at = text.find_first_of("<[", at + 1))
    if (const std::string mark = mark_at(text, at);
        !mark.empty() && std::find(known.begin(), known.end(), mark) == known.end())
      return mark;
  return "";
}

// The first sign that `text` has or lacks against `signs`; "": it fits.
std::string misfit(const std::string& text, const Signs& signs) {
  for (const char* const each : signs.has)
    if (text.find(each) == text.npos) return lockstep::text("it has no ", json(each).dump());
  for (const char* const each : signs.has_not)
    if (text.find(each) != text.npos) return lockstep::text("it has ", json(each).dump());
  const std::string mark = first_unknown_mark(text);
  return mark.empty() ? "" : lockstep::text("it has the token ", mark);
}

// The family whose tokens a text has, though it is another one.
const Signs* nearest_to(const std::string& text) {
  const Signs* nearest = nullptr;
  size_t most = 0;
  for (const Signs& signs : all_signs()) {
    const auto hits = static_cast<size_t>(
        std::count_if(signs.has.begin(), signs.has.end(),
                      [&](const char* sign) { return text.find(sign) != text.npos; }));
    if (text.find(signs.has[0]) != text.npos && hits > most) nearest = &signs, most = hits;
  }
  return nearest;
}

// "chat_template" is a text, or a list of named ones. "": there is none.
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

}  // namespace

Result<std::string> recognised_chat_template(std::string_view jinja) {
  if (std::string name = name_of_written_template(jinja); !name.empty()) return name;
  const std::string words = plain(jinja);
  for (const Signs& signs : all_signs())
    if (misfit(words, signs).empty()) return std::string(signs.name);
  const Signs* const near = nearest_to(words);
  return Error{
      Code::kConfig,
      text("the chat template of this tokenizer is not one that Lockstep knows (",
           ChatTemplate::known_names(), ")",
           near == nullptr ? std::string()
                           : text("; it resembles ", near->name, ", but ", misfit(words, *near)))};
}

Result<FolderTemplate> chat_template_of_folder(FileSystem& file_system, const fs::path& folder) {
  if (const fs::path file = folder / "chat_template.jinja"; file_system.exists(file)) {
    LOCKSTEP_TRY(std::string jinja, read_file(file_system, file));
    return FolderTemplate{file, std::move(jinja)};
  }
  for (const char* const name : {"tokenizer_config.json", "chat_template.json"}) {
    const fs::path file = folder / name;
    if (!file_system.exists(file)) continue;
    LOCKSTEP_TRY(const std::string contents, read_file(file_system, file));
    const json config = parse_json(contents, /*allow_exceptions=*/false);
    if (!config.is_object())
      return Error{Code::kConfig, text(file.string(), " is not a JSON object")};
    LOCKSTEP_TRY(std::string jinja, template_in(config, file));
    if (!jinja.empty()) return FolderTemplate{file, std::move(jinja)};
  }
  return Error{Code::kNotFound, text(folder.string(),
                                     " has no chat template (chat_template.jinja, or "
                                     "\"chat_template\" in tokenizer_config.json)")};
}

Result<std::string> resolved_chat_template(FileSystem& file_system, const std::string& name,
                                           const std::string& tokenizer) {
  if (name != kAuto) return name;
  if (tokenizer == "byte" || tokenizer.empty())
    return Error{Code::kConfig, text("--chat-template auto takes the template of the tokenizer's "
                                     "folder, but this tokenizer has none; give one of ",
                                     ChatTemplate::known_names())};
  const std::string advice =
      text("; give --chat-template NAME, one of ", ChatTemplate::known_names());
  fs::path folder = tokenizer;
  if (!file_system.list(folder).ok()) folder = folder.parent_path();
  const auto found = chat_template_of_folder(file_system, folder);
  if (!found.ok() && found.error().code == Code::kNotFound)
    return Error{Code::kConfig, found.error().message + advice};
  if (!found.ok()) return found.error();
  const auto known = recognised_chat_template(found.value().jinja);
  if (known.ok()) return known;
  return Error{Code::kConfig,
               text(found.value().file.string(), ": ", known.error().message, advice)};
}

}  // namespace lockstep::data
