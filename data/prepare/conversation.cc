#include "data/prepare/conversation.h"

#include <array>
#include <iterator>
#include <set>

#include "base/json.h"
#include "base/text.h"
#include "data/prepare/record_keys.h"

namespace lockstep::data {

namespace {

using nlohmann::ordered_json;

// ShareGPT's words for those who speak.
std::string role_of_speaker(const std::string& speaker) {
  if (speaker == "human") return "user";
  if (speaker == "gpt") return "assistant";
  return speaker;
}

bool has_text(const ordered_json& object, const char* name) {
  return object.contains(name) && object[name].is_string();
}

// The value itself, or what its text says.
ordered_json read_out(const ordered_json& value) {
  if (!value.is_string()) return value;
  return parse_json<ordered_json>(value.get<std::string>(), /*allow_exceptions=*/false);
}

Result<ToolCall> call_of(const ordered_json& json) {
  if (!json.is_object()) return Error{Code::kConfig, "a tool call is not an object"};
  const ordered_json& function = json.contains("function") ? json["function"] : json;
  if (!function.is_object() || !function.contains("arguments"))
    return Error{Code::kConfig, "a tool call has no \"arguments\""};
  ToolCall call;
  LOCKSTEP_TRY(call.name, field_of(function, "name"));
  const ordered_json arguments = read_out(function["arguments"]);
  if (!arguments.is_object())
    return Error{Code::kConfig,
                 text("the arguments of the tool call \"", call.name, "\" are not a JSON object")};
  call.arguments = python_json(arguments);
  if (has_text(json, "id")) call.id = json["id"].get<std::string>();
  return call;
}

// A text, or the texts of a list of parts, joined.
Result<std::string> content_of(const ordered_json& json, const std::string& name) {
  const auto found = json.find(name);
  if (found == json.end() || !found->is_array()) return field_of(json, name);
  std::string all;
  for (const ordered_json& part : *found) {
    if (!part.is_object() || !has_text(part, "type"))
      return Error{Code::kConfig, text("a part of \"", name, "\" is no object with a \"type\"")};
    const std::string type = part["type"].get<std::string>();
    if (type != "text")
      return Error{Code::kConfig, text("\"", name, "\" has a part of the type \"", type,
                                       "\", and only text is learnt here")};
    LOCKSTEP_TRY(const std::string words, field_of(part, "text"));
    all += words;
  }
  return all;
}

bool is_there(const ordered_json& record, const char* name) {
  return record.contains(name) && !record[name].is_null();
}

// Of the two names of a field the one that the turn has.
Result<std::string> one_of(const ordered_json& json, const char* name, const char* other) {
  if (is_there(json, name) && is_there(json, other))
    return Error{Code::kConfig, text("the turn has both \"", name, "\" and \"", other, "\"")};
  return std::string(is_there(json, other) ? other : name);
}

// Whether an answer is learnt. Turns of others are given, never learnt.
Result<bool> is_learnt(const ordered_json& json, const std::string& role) {
  LOCKSTEP_TRY(const LearningMark said, learning_of(json));
  if (role == "assistant") return said != LearningMark::kNotLearnt;
  if (said != LearningMark::kLearnt) return false;
  return Error{Code::kConfig, text("a turn of the role \"", role,
                                   "\" is to be learnt, and only what the assistant says is; "
                                   "--ignore-key with the name of that key passes over it")};
}

Result<Message> message_of(const ordered_json& json) {
  if (!json.is_object()) return Error{Code::kConfig, "a message is not an object"};
  static const std::set<std::string> kUsed = {
      "role", "content", "from", "value", "tool_calls", "tool_call_id", "reasoning_content"};
  Message message;
  LOCKSTEP_TRY(const std::string speaker, one_of(json, "role", "from"));
  LOCKSTEP_TRY(const std::string said, one_of(json, "content", "value"));
  LOCKSTEP_TRY(message.role, field_of(json, speaker));
  if (speaker == "from") message.role = role_of_speaker(message.role);
  LOCKSTEP_RETURN_IF_ERROR(check_keys(json, KeyPlace::kTurn, kUsed));
  LOCKSTEP_TRY(message.learnt, is_learnt(json, message.role));
  const ordered_json calls = json.value("tool_calls", ordered_json());
  if (!calls.is_null() && !calls.is_array())
    return Error{Code::kConfig, "\"tool_calls\" is not a list"};
  for (const ordered_json& each : calls) {
    LOCKSTEP_TRY(ToolCall call, call_of(each));
    message.calls.push_back(std::move(call));
  }
  const bool says_nothing = !json.contains(said) || json[said].is_null();
  if (message.calls.empty() || !says_nothing) {
    LOCKSTEP_TRY(message.content, content_of(json, said));
  } else {
    message.content_is = json.contains(said) ? ContentIs::kNull : ContentIs::kAbsent;
  }
  if (has_text(json, "name")) message.name = json["name"].get<std::string>();
  if (has_text(json, "tool_call_id")) message.call_id = json["tool_call_id"].get<std::string>();
  if (has_text(json, "reasoning_content"))
    message.thought = json["reasoning_content"].get<std::string>();
  return message;
}

using Messages = std::vector<Message>;

// A list, or its text, as a column of a table has to hold it.
Result<Messages> messages_of(const ordered_json& value, const char* name) {
  const ordered_json parsed = value.is_string() ? read_out(value) : ordered_json();
  const ordered_json& list = value.is_string() ? parsed : value;
  if (!list.is_array() || list.empty())
    return Error{Code::kConfig, text("\"", name, "\" is no list of turns")};
  Messages messages;
  for (const ordered_json& each : list) {
    auto message = message_of(each);
    if (!message.ok()) return message.error().in(text(name, "[", messages.size(), "]"));
    messages.push_back(std::move(message).value());
  }
  return messages;
}

bool has_turn_pair(const ordered_json& record) {
  return is_there(record, "prompt") && is_there(record, "completion") &&
         record["prompt"].is_array() && record["completion"].is_array();
}

// What follows a prompt of turns is learnt, and the prompt is not.
Result<Messages> prompt_and_completion(const ordered_json& record) {
  LOCKSTEP_TRY(Messages messages, messages_of(record["prompt"], "prompt"));
  for (Message& each : messages) each.learnt = false;
  LOCKSTEP_TRY(const Messages completion, messages_of(record["completion"], "completion"));
  messages.insert(messages.end(), completion.begin(), completion.end());
  return messages;
}

// Those that the record has under one of the names for them.
Result<Messages> turns_of(const ordered_json& record) {
  const bool pair = has_turn_pair(record);
  const bool messages = is_there(record, "messages");
  const bool conversations = is_there(record, "conversations");
  if (messages + conversations + pair > 1)
    return Error{
        Code::kConfig,
        "the turns stand under two names (\"messages\", \"conversations\", \"prompt\" with "
        "\"completion\"); --ignore-key NAME passes over one"};
  if (pair) return prompt_and_completion(record);
  if (messages) return messages_of(record["messages"], "messages");
  if (conversations) return messages_of(record["conversations"], "conversations");
  const std::string flags = flags_for(record);
  return Error{
      Code::kConfig,
      text("the line has neither a list \"messages\" nor a list \"conversations\"; for other "
           "fields (Alpaca rows, say) give --prompt-field and --response-field; its fields are: ",
           key_names(record), flags.empty() ? "" : "; for these: ", flags)};
}

// Earlier turns. What was answered in them is learnt like other answers.
Result<Messages> history_of(const ordered_json& record) {
  const ordered_json history = read_out(record.value("history", ordered_json()));
  if (is_empty_value(history)) return Messages();
  const Error error{Code::kConfig,
                    "\"history\" is no list of pairs of texts [what the user said, the answer]"};
  if (!history.is_array()) return error;
  if (history[0].is_object()) return messages_of(history, "history");
  Messages messages;
  for (const ordered_json& pair : history) {
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string())
      return error;
    messages.push_back({"user", pair[0].get<std::string>()});
    messages.push_back({"assistant", pair[1].get<std::string>()});
  }
  return messages;
}

// Puts what stands next to the turns to its place among them.
Result<void> add_columns(const ordered_json& record, Messages& messages) {
  LOCKSTEP_TRY(const Messages history, history_of(record));
  const bool has_system = messages[0].role == "system";
  messages.insert(messages.begin() + has_system, history.begin(), history.end());
  if (is_there(record, "system")) {
    LOCKSTEP_TRY(const std::string system, field_of(record, "system"));
    if (has_system && !system.empty() && system != messages[0].content)
      return Error{Code::kConfig,
                   "\"system\" differs from the system message among the turns; --ignore-key "
                   "system keeps the latter"};
    if (!has_system && !system.empty()) messages.insert(messages.begin(), {"system", system});
  }
  if (!is_there(record, "prompt") || !record["prompt"].is_string()) return {};
  // Some sets repeat the first question next to the turns.
  for (const Message& each : messages)
    if (each.role == "user") {
      if (each.content == record["prompt"].get<std::string>()) return {};
      break;
    }
  return Error{Code::kConfig,
               "\"prompt\" stands next to the turns and is not the user's first one; --ignore-key "
               "prompt passes over it"};
}

}  // namespace

Result<Conversation> parse_conversation(const ordered_json& record) {
  Conversation chat;
  LOCKSTEP_TRY(chat.messages, turns_of(record));
  std::set<std::string> used = {"messages", "conversations", "tools", "system", "history"};
  if (has_turn_pair(record)) used.insert({"prompt", "completion"});
  if (is_there(record, "prompt") && record["prompt"].is_string()) used.insert("prompt");
  LOCKSTEP_RETURN_IF_ERROR(check_keys(record, KeyPlace::kChat, used));
  LOCKSTEP_RETURN_IF_ERROR(add_columns(record, chat.messages));
  const ordered_json given = record.value("tools", ordered_json());
  const ordered_json tools = is_empty_value(given) ? ordered_json() : read_out(given);
  if (!tools.is_null() && !tools.is_array())
    return Error{Code::kConfig, "\"tools\" is not a list of functions"};
  for (const ordered_json& tool : tools) {
    if (!tool.is_object()) return Error{Code::kConfig, "an entry of \"tools\" is not an object"};
    chat.tools.push_back(python_json(tool));
  }
  return chat;
}

std::string python_json(const ordered_json& value) {
  if (!value.is_structured()) return value.dump();
  std::string out;
  for (const auto& [key, each] : value.items()) {
    if (!out.empty()) out += ", ";
    if (value.is_object()) out += ordered_json(key).dump() + ": ";
    out += python_json(each);
  }
  return value.is_object() ? "{" + out + "}" : "[" + out + "]";
}

Result<std::string> field_of(const ordered_json& object, const std::string& name) {
  const auto found = object.find(name);
  if (found == object.end()) {
    return Error{Code::kConfig,
                 text("it has no field \"", name, "\"; its fields are: ", key_names(object))};
  }
  if (!found->is_string())
    return Error{Code::kConfig,
                 text("the field \"", name, "\" is not a string but ", found->type_name())};
  return found->get<std::string>();
}

}  // namespace lockstep::data
