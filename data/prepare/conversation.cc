#include "data/prepare/conversation.h"

#include <set>

#include "base/json.h"
#include "base/text.h"

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

Result<Message> message_of(const ordered_json& json) {
  Message message;
  LOCKSTEP_TRY(message.role, field_of(json, "role"));
  const ordered_json calls = json.value("tool_calls", ordered_json());
  if (!calls.is_null() && !calls.is_array())
    return Error{Code::kConfig, "\"tool_calls\" is not a list"};
  for (const ordered_json& each : calls) {
    LOCKSTEP_TRY(ToolCall call, call_of(each));
    message.calls.push_back(std::move(call));
  }
  const bool says_nothing = !json.contains("content") || json["content"].is_null();
  if (message.calls.empty() || !says_nothing) {
    LOCKSTEP_TRY(message.content, field_of(json, "content"));
  }
  if (has_text(json, "tool_call_id")) message.call_id = json["tool_call_id"].get<std::string>();
  if (has_text(json, "reasoning_content"))
    message.thought = json["reasoning_content"].get<std::string>();
  return message;
}

Result<Message> message_of_speaker(const ordered_json& json) {
  Message message;
  LOCKSTEP_TRY(message.role, field_of(json, "from"));
  LOCKSTEP_TRY(message.content, field_of(json, "value"));
  message.role = role_of_speaker(message.role);
  return message;
}

}  // namespace

Result<Conversation> parse_conversation(const ordered_json& record) {
  auto found = record.find("messages");
  const bool by_speakers = found == record.end();
  if (by_speakers) found = record.find("conversations");
  if (found == record.end() || !found->is_array() || found->empty())
    return Error{Code::kConfig,
                 "the line has neither a list \"messages\" nor a list \"conversations\"; for other "
                 "fields (Alpaca rows, say) give --prompt-field and --response-field"};
  Conversation chat;
  for (const ordered_json& each : *found) {
    if (!each.is_object()) return Error{Code::kConfig, "a message is not an object"};
    LOCKSTEP_TRY(Message message, by_speakers ? message_of_speaker(each) : message_of(each));
    chat.messages.push_back(std::move(message));
  }
  const ordered_json tools = read_out(record.value("tools", ordered_json()));
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
    std::set<std::string> keys;
    for (const auto& [key, value] : object.items()) keys.insert(key);
    std::string names;
    for (const std::string& key : keys) names += (names.empty() ? "" : ", ") + key;
    return Error{Code::kConfig, text("it has no field \"", name, "\"; its fields are: ", names)};
  }
  if (!found->is_string())
    return Error{Code::kConfig, text("the field \"", name, "\" is not a string")};
  return found->get<std::string>();
}

}  // namespace lockstep::data
