// A conversation, as a record of JSON lines has it.
//
//   {"messages": [{"role": "user", "content": "Hi"}, …], "tools": […]}
//   {"conversations": [{"from": "human", "value": "Hi"}, …]}                       ShareGPT's
//   {"prompt": [… turns …], "completion": [… turns …]}        only the completion's are learnt
//
// Next to the turns: "system" is a text that becomes the first turn, "history" holds earlier turns,
// each a pair of what the user said and what was answered, or turns like the others. Contents are
// texts, or lists of {"type": "text", "text": …}, which are joined.
// "weight", "loss_weight", "train", "trainable" or "loss" of a turn, 0 or false, means that it is
// not learnt. Other keys: data/prepare/record_keys.h.
//
// Tools are OpenAI's: "tools" lists JSON schemas of functions, or is that list as a text; an
// assistant's message has "tool_calls": [{"id": …, "function": {"name": …, "arguments": {…}}}], the
// function's fields may also stand in the call itself, and arguments may be the text of an object;
// what a tool answers has the role "tool", and "tool_call_id". "reasoning_content" is what the
// assistant thought before it answered.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace lockstep::data {

struct ToolCall {
  std::string name, arguments;  // an object, as python_json writes it
  std::string id;               // "": none
};

enum class ContentIs { kText, kNull, kAbsent };

struct Message {
  std::string role, content;
  std::vector<ToolCall> calls = {};
  std::string call_id = {};                 // of a tool's answer
  std::optional<std::string> thought = {};  // "reasoning_content"
  bool learnt = true;                       // if it is an answer
  std::string name = {};                    // "name", which some templates of folders write
  ContentIs content_is = ContentIs::kText;  // of an answer that calls tools
};

struct Conversation {
  std::vector<Message> messages;
  std::vector<std::string> tools = {};  // schemas, as python_json writes them
};

// Errors: kConfig: no list of messages, a field that is missing or of another type, check_keys',
// learning_of's; turns and a column that contradict each other.
Result<Conversation> parse_conversation(const nlohmann::ordered_json& record);

// As Python's json.dumps(value, ensure_ascii=False) writes it: a space after each comma and colon.
std::string python_json(const nlohmann::ordered_json& value);

// The text of a field. Errors: kConfig: it is missing, or no string.
Result<std::string> field_of(const nlohmann::ordered_json& object, const std::string& name);

}  // namespace lockstep::data
