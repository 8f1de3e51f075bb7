#include "data/prepare/record.h"

#include <algorithm>
#include <array>

#include "base/json.h"
#include "base/text.h"
#include "data/prepare/record_keys.h"

namespace lockstep::data {

namespace {

using nlohmann::ordered_json;

constexpr const char* kChat = "chat ";
constexpr const char* kIgnoring = " ignore_key ";
constexpr std::array kTurnLists = {"messages", "conversations", "prompt", "completion", "history"};

Passage passage(std::string words, bool in_loss, SpecialNames names) {
  return {.words = std::move(words), .in_loss = in_loss, .names = names};
}

// Its messages' own words.
std::string words_of(const Conversation& chat) {
  std::string words;
  for (const Message& each : chat.messages) {
    words += each.role + "\n" + each.content + "\n";
    for (const ToolCall& call : each.calls) words += call.name + call.arguments + "\n";
  }
  return words;
}

// Why a line is no JSON object.
Error json_fault(std::string_view line) {
  const size_t first = line.find_first_not_of(" \t\r\n");
  if (first == line.npos || line[first] != '{')
    return Error{Code::kConfig,
                 text("the line is not a JSON object",
                      first != line.npos && line[first] == '[' ? " but a list" : "")};
  std::string what;
  try {
    static_cast<void>(parse_json<ordered_json>(line));
  } catch (const nlohmann::json::parse_error& error) {
    what = error.what();
    const size_t at = std::min(error.byte, line.size());
    if (what.find("surrogate") != what.npos)
      return Error{Code::kConfig,
                   text("the line is not a JSON object: near column ", at,
                        " a text has half of a surrogate pair (\\ud800 to \\udfff), which is no "
                        "character; write the character itself or both halves")};
    // The parser has read as far as the first letter that does not fit.
    const std::string_view around = line.substr(at < 10 ? 0 : at - 10, 20);
    for (const char* const word : {"NaN", "Infinity"})
      if (around.find(word) != around.npos)
        return Error{Code::kConfig,
                     text("the line is not a JSON object: near column ", at, " stands ", word,
                          ", which JSON does not have; write null, or take the key out")};
    return Error{Code::kConfig, text("the line is not a JSON object: it is wrong or cut short near "
                                     "column ",
                                     at)};
  } catch (const nlohmann::json::exception& error) {
    what = error.what();
  }
  return Error{Code::kConfig, "the line is not a JSON object: " + what};
}

void drop_keys(ordered_json& object, const std::set<std::string>& keys) {
  if (!object.is_object()) return;
  for (const std::string& key : keys) object.erase(key);
}

// Of the record and of its turns.
void drop_ignored(ordered_json& record, const std::set<std::string>& keys) {
  if (keys.empty()) return;
  drop_keys(record, keys);
  for (const char* const name : kTurnLists) {
    const auto turns = record.find(name);
    if (turns == record.end()) continue;
    if (turns->is_string() && turns->get_ref<const std::string&>().starts_with('[')) {
      auto read = parse_json<ordered_json>(turns->get<std::string>(), false);
      if (read.is_array()) *turns = std::move(read);
    }
    if (turns->is_array())
      for (ordered_json& turn : *turns) drop_keys(turn, keys);
  }
}

// The text of a field that a flag names.
Result<std::string> named_field(const ordered_json& record, const std::string& name) {
  auto found = field_of(record, name);
  if (found.ok()) return found;
  const bool has_turns = record.contains(name) && record[name].is_array() &&
                         !record[name].empty() && record[name][0].is_object();
  const std::string flags = has_turns ? "--chat-template, for a list of turns" : flags_for(record);
  if (flags.empty() || (!has_turns && record.contains(name))) return found;
  return Error{Code::kConfig, text(found.error().message, "; for these: ", flags)};
}

}  // namespace

std::string RecordFormat::description() const {
  std::string ignored;
  for (const std::string& key : ignored_keys)
    if (has_meaning(key)) ignored += (ignored.empty() ? kIgnoring : ",") + key;
  if (!text_field.empty()) return "text_field " + text_field + ignored;
  if (!chat_template.empty()) return kChat + chat_template + ignored;
  return text("prompt_field ", prompt_field, " response_field ", response_field, ignored);
}

std::string RecordFormat::chat_template_in(const std::string& description) {
  const std::string kind = kChat;
  if (!description.starts_with(kind)) return "";
  return description.substr(kind.size(), description.find(kIgnoring) - kind.size());
}

Result<Record> parse_record(std::string_view line, const RecordFormat& format,
                            const std::optional<ChatTemplate>& chat) {
  auto object = parse_json<ordered_json>(line, /*allow_exceptions=*/false);
  if (!object.is_object()) return json_fault(line);
  drop_ignored(object, format.ignored_keys);
  Record record;
  if (!format.text_field.empty()) {
    LOCKSTEP_TRY(record.text, named_field(object, format.text_field));
    LOCKSTEP_RETURN_IF_ERROR(check_keys(object, KeyPlace::kText, {format.text_field}));
    record.passages.push_back(passage(record.text, true, SpecialNames::kAreTokens));
  } else if (chat) {
    LOCKSTEP_TRY(const Conversation conversation, parse_conversation(object));
    record.text = words_of(conversation);
    record.is_learnt =
        std::any_of(conversation.messages.begin(), conversation.messages.end(),
                    [](const Message& each) { return each.learnt && each.role == "assistant"; });
    LOCKSTEP_TRY(record.passages, chat->passages(conversation));
  } else {
    LOCKSTEP_TRY(std::string prompt, named_field(object, format.prompt_field));
    LOCKSTEP_TRY(std::string response, named_field(object, format.response_field));
    LOCKSTEP_RETURN_IF_ERROR(
        check_keys(object, KeyPlace::kPair, {format.prompt_field, format.response_field}));
    record.text = prompt + "\n" + response;
    record.passages.push_back(passage(std::move(prompt), false, SpecialNames::kAreText));
    record.passages.push_back(passage(std::move(response), true, SpecialNames::kAreText));
  }
  return record;
}

void note_keys(std::string_view line, const RecordFormat& format, KeySurvey& survey) {
  auto record = parse_json<ordered_json>(line, /*allow_exceptions=*/false);
  if (!record.is_object()) return;
  const auto note = [&](const ordered_json& object, KeyPlace place, const std::string& before) {
    for (const auto& [key, value] : object.items()) {
      const bool over = format.ignored_keys.contains(key) || is_inert_key(key, place);
      (over ? survey.passed_over : survey.used).insert(before + key);
    }
  };
  if (format.chat_template.empty()) {
    for (const auto& [key, value] : record.items()) {
      const bool used =
          key == format.text_field || key == format.prompt_field || key == format.response_field;
      (used ? survey.used : survey.passed_over).insert(key);
    }
    return;
  }
  note(record, KeyPlace::kChat, "");
  for (const char* const name : kTurnLists) {
    const auto turns = record.find(name);
    if (turns == record.end() || !turns->is_array()) continue;
    for (const ordered_json& turn : *turns)
      if (turn.is_object()) note(turn, KeyPlace::kTurn, text(name, "[]."));
  }
}

std::string flags_for(std::string_view line) {
  return flags_for(parse_json<ordered_json>(line, /*allow_exceptions=*/false));
}

}  // namespace lockstep::data
