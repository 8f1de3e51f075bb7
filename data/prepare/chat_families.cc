#include "data/prepare/chat_families.h"

#include <algorithm>

#include "base/json.h"
#include "base/text.h"
#include "data/tokenizer/unicode.h"

namespace lockstep::data {

namespace {

using Messages = std::vector<Message>;

bool is_answer(const Message& message) { return message.role == "assistant"; }
bool is_tool(const Message& message) { return message.role == "tool"; }

std::string without(const std::string& text, const char* signs, bool left = true,
                    bool right = true) {
  const size_t first = left ? text.find_first_not_of(signs) : 0;
  if (first == std::string::npos) return "";
  const size_t last = right ? text.find_last_not_of(signs) : text.size() - 1;
  return last == std::string::npos ? "" : text.substr(first, last - first + 1);
}

// As Python's str.strip() does it, which the templates call.
std::string trimmed(const std::string& text) {
  const auto is_space = [](const CodePoint& each) {
    return (each.classes & kSpace) != 0 || (each.value >= 0x1c && each.value <= 0x1f);
  };
  const char *begin = text.data(), *end = begin + text.size();
  while (begin < end && is_space(code_point_at(begin, end)))
    begin += code_point_at(begin, end).bytes;
  while (begin < end && is_space(code_point_before(begin, end)))
    end -= code_point_before(begin, end).bytes;
  return {begin, end};
}

// Those of the user and the assistant alone, who must take turns. `before`: messages that were
// taken off the front.
Result<void> check_turns(const Messages& messages, const char* name, size_t before = 0) {
  size_t turn = 0;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (is_tool(messages[i]) || !messages[i].calls.empty()) continue;
    if (messages[i].role != (turn++ % 2 == 0 ? "user" : "assistant"))
      return Error{
          Code::kConfig,
          text("the ", name, " template needs user and assistant to alternate, but message ",
               i + 1 + before, " is from the ", messages[i].role)};
  }
  return {};
}

// ---- chatml, qwen2, qwen2.5, qwen3

constexpr const char *kStart = "<|im_start|>", *kEnd = "<|im_end|>";

void add_chatml(const std::string& role, const std::string& content, ChatWriter& out) {
  const bool answer = role == "assistant";
  out.token(kStart);
  if (answer) {
    out.words(role + "\n");
    out.words(content, true);
  } else {
    out.words(role + "\n" + content);
  }
  out.token(kEnd, answer);
  out.words("\n");
}

Result<void> write_chatml(const Conversation& chat, ChatWriter& out) {
  for (const Message& message : chat.messages) add_chatml(message.role, message.content, out);
  return {};
}

Result<void> write_qwen2(const Conversation& chat, ChatWriter& out) {
  if (chat.messages[0].role != "system") add_chatml("system", "You are a helpful assistant.", out);
  return write_chatml(chat, out);
}

// What says which tools there are, behind `system`.
std::string qwen_system(std::string system, const std::vector<std::string>& tools) {
  if (tools.empty()) return system;
  system +=
      "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
      "You are provided with function signatures within <tools></tools> XML tags:\n<tools>";
  for (const std::string& tool : tools) system += "\n" + tool;
  return system +
         "\n</tools>\n\nFor each function call, return a json object with function name and "
         "arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n"
         "{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call>";
}

std::string qwen_answer(std::string content, const std::vector<ToolCall>& calls) {
  for (const ToolCall& call : calls)
    content += text(content.empty() ? "" : "\n", "<tool_call>\n{\"name\": \"", call.name,
                    "\", \"arguments\": ", call.arguments, "}\n</tool_call>");
  return content;
}

// What the tools from `first` on say, as the user's; returns the place behind them.
size_t add_qwen_tools(const Messages& messages, size_t first, ChatWriter& out) {
  std::string content;
  size_t i = first;
  for (; i < messages.size() && is_tool(messages[i]); ++i)
    content += text(i == first ? "" : "\n", "<tool_response>\n", messages[i].content,
                    "\n</tool_response>");
  add_chatml("user", content, out);
  return i;
}

Result<void> write_qwen25(const Conversation& chat, ChatWriter& out) {
  const bool has_system = chat.messages[0].role == "system";
  const std::string system =
      has_system ? chat.messages[0].content
                 : "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.";
  add_chatml("system", qwen_system(system + (chat.tools.empty() ? "" : "\n\n"), chat.tools), out);
  for (size_t i = has_system; i < chat.messages.size();) {
    const Message& message = chat.messages[i];
    if (is_tool(message)) {
      i = add_qwen_tools(chat.messages, i, out);
      continue;
    }
    add_chatml(message.role, qwen_answer(message.content, message.calls), out);
    ++i;
  }
  return {};
}

struct Answer {
  std::string thought, content;
};
Answer qwen3_answer(const Message& message) {
  if (message.thought) return {*message.thought, message.content};
  const std::string &all = message.content, open = "<think>", close = "</think>";
  const size_t first = all.find(close), last = all.rfind(close);
  if (first == std::string::npos) return {"", all};
  std::string thought = without(all.substr(0, first), "\n", /*left=*/false);
  if (const size_t at = thought.rfind(open); at != std::string::npos)
    thought = thought.substr(at + open.size());
  return {without(thought, "\n", true, false),
          without(all.substr(last + close.size()), "\n", true, false)};
}

// The last message of the user that does not hold what a tool said; without one: past the end.
size_t last_query(const Messages& messages) {
  for (size_t i = messages.size(); i-- > 0;) {
    const std::string& content = messages[i].content;
    if (messages[i].role == "user" &&
        !(content.starts_with("<tool_response>") && content.ends_with("</tool_response>")))
      return i;
  }
  return messages.size();
}

Result<void> write_qwen3(const Conversation& chat, ChatWriter& out) {
  const Messages& messages = chat.messages;
  const bool has_system = messages[0].role == "system";
  if (has_system || !chat.tools.empty()) {
    const std::string system = has_system ? messages[0].content : "";
    const bool apart = has_system && !chat.tools.empty();
    add_chatml("system", qwen_system(system + (apart ? "\n\n" : ""), chat.tools), out);
  }
  const size_t query = last_query(messages);
  for (size_t i = has_system; i < messages.size();) {
    if (is_tool(messages[i])) {
      i = add_qwen_tools(messages, i, out);
      continue;
    }
    std::string content = messages[i].content;
    if (is_answer(messages[i])) {
      const Answer answer = qwen3_answer(messages[i]);
      const bool is_last = i + 1 == messages.size();
      const std::string thought =
          i > query && (is_last || !answer.thought.empty())
              ? text("<think>\n", without(answer.thought, "\n"), "\n</think>\n\n")
              : "";
      content = thought.empty() ? answer.content : without(answer.content, "\n", true, false);
      content = thought + qwen_answer(std::move(content), messages[i].calls);
    }
    add_chatml(messages[i].role, content, out);
    ++i;
  }
  return {};
}

void open_chatml(ChatWriter& out) {
  out.token(kStart);
  out.words("assistant\n");
}

// ---- llama3, llama3.1

constexpr const char *kHeader = "<|start_header_id|>", *kHeaderEnd = "<|end_header_id|>",
                     *kEot = "<|eot_id|>";

void open_llama3(const std::string& role, ChatWriter& out) {
  out.token(kHeader);
  out.words(role);
  out.token(kHeaderEnd);
  out.words("\n\n");
}
void open_llama3_answer(ChatWriter& out) { open_llama3("assistant", out); }

void add_llama3(const std::string& role, const std::string& content, ChatWriter& out) {
  const bool answer = role == "assistant";
  open_llama3(role, out);
  out.words(content, answer);
  out.token(kEot, answer);
}

Result<void> write_llama3(const Conversation& chat, ChatWriter& out) {
  for (const Message& message : chat.messages)
    add_llama3(message.role, trimmed(message.content), out);
  return {};
}

// The first message of the user, behind the schemas of the tools.
std::string llama31_request(const Conversation& chat, const std::string& content) {
  std::string out =
      "Given the following functions, please respond with a JSON for a function call with its "
      "proper arguments that best answers the given prompt.\n\nRespond in the format {\"name\": "
      "function name, \"parameters\": dictionary of argument name and its value}.Do not use "
      "variables.\n\n";
  for (const std::string& tool : chat.tools)
    out += parse_json<nlohmann::ordered_json>(tool).dump(4) + "\n\n";
  return out + trimmed(content);
}

Result<void> write_llama31(const Conversation& chat, ChatWriter& out) {
  const Messages& messages = chat.messages;
  const bool has_system = messages[0].role == "system", has_tools = !chat.tools.empty();
  add_llama3("system",
             text(has_tools ? "Environment: ipython\n" : "",
                  "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n",
                  has_system ? trimmed(messages[0].content) : ""),
             out);
  size_t i = has_system;
  if (has_tools) {
    if (i == messages.size() || messages[i].role != "user")
      return Error{Code::kConfig,
                   "the llama3.1 template puts tools into the first user message, but another "
                   "message comes first"};
    add_llama3("user", llama31_request(chat, messages[i].content), out);
    ++i;
  }
  for (; i < messages.size(); ++i) {
    const Message& message = messages[i];
    if (message.calls.size() > 1)
      return Error{Code::kConfig,
                   text("message ", i + 1, " calls ", message.calls.size(),
                        " tools, but the llama3.1 template takes one call in a message")};
    if (!message.calls.empty())
      add_llama3("assistant",
                 text("{\"name\": \"", message.calls[0].name,
                      "\", \"parameters\": ", message.calls[0].arguments, "}"),
                 out);
    else if (is_tool(message))
      add_llama3("ipython", python_json(message.content), out);
    else
      add_llama3(message.role, trimmed(message.content), out);
  }
  return {};
}

// ---- mistral

constexpr const char *kInst = "[INST]", *kInstEnd = "[/INST]", *kEos = "</s>";
constexpr const char *kTools = "[AVAILABLE_TOOLS]", *kToolsEnd = "[/AVAILABLE_TOOLS]",
                     *kCalls = "[TOOL_CALLS]", *kResults = "[TOOL_RESULTS]",
                     *kResultsEnd = "[/TOOL_RESULTS]";

// Its strings stand in it as they are, as they do in the published template.
std::string mistral_tool(const std::string& tool) {
  const auto schema = parse_json<nlohmann::ordered_json>(tool);
  const auto function = schema.value("function", schema);
  std::string fields;
  for (const auto& [key, value] : function.items()) {
    if (key == "return") continue;
    fields += text(fields.empty() ? "" : ", ", "\"", key, "\": ",
                   value.is_string() ? "\"" + value.get<std::string>() + "\"" : python_json(value));
  }
  return "{\"type\": \"function\", \"function\": {" + fields + "}}";
}

void add_mistral_tools(const std::vector<std::string>& tools, ChatWriter& out) {
  std::string list;
  for (const std::string& tool : tools) list += text(list.empty() ? "" : ", ", mistral_tool(tool));
  out.token(kTools);
  out.words("[" + list + "]");
  out.token(kToolsEnd);
}

Result<void> add_mistral_calls(const Message& message, size_t number, ChatWriter& out) {
  std::string list;
  for (const ToolCall& call : message.calls) {
    if (call.id.empty())
      return Error{Code::kConfig,
                   text("message ", number, " calls the tool \"", call.name,
                        "\" without an \"id\", which the mistral template requires")};
    list += text(list.empty() ? "" : ", ", "{\"name\": \"", call.name,
                 "\", \"arguments\": ", call.arguments, ", \"id\": \"", call.id, "\"}");
  }
  out.token(kCalls, true);
  out.words("[" + list + "]", true);
  out.token(kEos, true);
  return {};
}

Result<void> add_mistral_result(const Message& message, size_t number, ChatWriter& out) {
  if (message.call_id.empty())
    return Error{Code::kConfig, text("message ", number,
                                     " of the role \"tool\" has no \"tool_call_id\", which "
                                     "the mistral template wants")};
  out.token(kResults);
  out.words(text("{\"content\": ", message.content, ", \"call_id\": \"", message.call_id, "\"}"));
  out.token(kResultsEnd);
  return {};
}

Result<void> write_mistral(const Conversation& chat, ChatWriter& out) {
  Messages messages = chat.messages;
  const bool has_system = messages[0].role == "system";
  const std::string system = has_system ? messages[0].content + "\n\n" : "";
  if (has_system) messages.erase(messages.begin());
  const auto user = std::find_if(messages.rbegin(), messages.rend(),
                                 [](const Message& each) { return each.role == "user"; });
  if (has_system && user == messages.rend())
    return Error{Code::kConfig, "a system message without a user's"};
  LOCKSTEP_RETURN_IF_ERROR(check_turns(messages, "mistral", has_system));
  const size_t last_user = static_cast<size_t>(messages.rend() - user) - 1;
  for (size_t i = 0; i < messages.size(); ++i) {
    const Message& message = messages[i];
    if (is_tool(message)) {
      LOCKSTEP_RETURN_IF_ERROR(add_mistral_result(message, i + 1 + has_system, out));
    } else if (!message.calls.empty()) {
      LOCKSTEP_RETURN_IF_ERROR(add_mistral_calls(message, i + 1 + has_system, out));
    } else if (is_answer(message)) {
      out.words(message.content, true);
      out.token(kEos, true);
    } else {
      if (i == last_user && !chat.tools.empty()) add_mistral_tools(chat.tools, out);
      out.token(kInst);
      out.words((i == last_user ? system : "") + message.content);
      out.token(kInstEnd);
    }
  }
  return {};
}

void open_mistral(ChatWriter&) {}  // the answer follows [/INST]

// ---- gemma, gemma3

constexpr const char *kTurn = "<start_of_turn>", *kTurnEnd = "<end_of_turn>";

void open_gemma(ChatWriter& out) {
  out.token(kTurn);
  out.words("model\n");
}

void add_gemma(const Message& message, const std::string& before, ChatWriter& out) {
  const bool answer = is_answer(message);
  if (answer) {
    open_gemma(out);
    out.words(trimmed(message.content), true);
  } else {
    out.token(kTurn);
    out.words(message.role + "\n" + before + trimmed(message.content));
  }
  out.token(kTurnEnd, answer);
  out.words("\n");
}

Result<void> write_gemma(const Conversation& chat, ChatWriter& out) {
  LOCKSTEP_RETURN_IF_ERROR(check_turns(chat.messages, "gemma"));
  for (const Message& message : chat.messages) add_gemma(message, "", out);
  return {};
}

Result<void> write_gemma3(const Conversation& chat, ChatWriter& out) {
  Messages messages = chat.messages;
  std::string system;
  if (messages[0].role == "system") {
    system = messages[0].content + "\n\n";
    messages.erase(messages.begin());
  }
  LOCKSTEP_RETURN_IF_ERROR(check_turns(messages, "gemma3", chat.messages.size() - messages.size()));
  for (const Message& message : messages) {
    add_gemma(message, system, out);
    system.clear();
  }
  return {};
}

// ---- zephyr

Result<void> write_zephyr(const Conversation& chat, ChatWriter& out) {
  for (const Message& message : chat.messages) {
    const bool answer = is_answer(message);
    out.more(text("<|", message.role, "|>\n", answer ? "" : message.content));
    if (answer) out.words(message.content, true);
    out.token(kEos, answer);
    out.words("\n");
  }
  return {};
}

void open_zephyr(ChatWriter& out) { out.more("<|assistant|>\n"); }

}  // namespace

void ChatWriter::token(const char* name, bool in_loss) {
  const auto found = tokens_.find(name);
  if (found == tokens_.end()) {
    missing_ = name;
    return;
  }
  passages_.push_back({.token = found->second, .in_loss = in_loss});
}

void ChatWriter::words(std::string text, bool in_loss) {
  passages_.push_back({.words = std::move(text),
                       .in_loss = in_loss,
                       .joins = !passages_.empty() && !passages_.back().token});
}

void ChatWriter::more(const std::string& text) {
  if (passages_.empty() || passages_.back().token || passages_.back().in_loss)
    words(text);
  else
    passages_.back().words += text;
}

std::span<const ChatFamily> chat_families() {
  static const std::vector<ChatFamily> families = {
      {"chatml", {kStart, kEnd}, kEnd, {}, false, write_chatml, open_chatml},
      {"gemma", {kTurn, kTurnEnd}, kTurnEnd, {}, false, write_gemma, open_gemma},
      {"gemma3", {kTurn, kTurnEnd}, kTurnEnd, {}, false, write_gemma3, open_gemma},
      {"llama3", {kHeader, kHeaderEnd, kEot}, kEot, {}, false, write_llama3, open_llama3_answer},
      {"llama3.1", {kHeader, kHeaderEnd, kEot}, kEot, {}, true, write_llama31, open_llama3_answer},
      {"mistral",
       {kInst, kInstEnd, kEos},
       kEos,
       {kTools, kToolsEnd, kCalls, kResults, kResultsEnd},
       true,
       write_mistral,
       open_mistral},
      {"qwen2", {kStart, kEnd}, kEnd, {}, false, write_qwen2, open_chatml},
      {"qwen2.5", {kStart, kEnd}, kEnd, {}, true, write_qwen25, open_chatml},
      {"qwen3", {kStart, kEnd}, kEnd, {}, true, write_qwen3, open_chatml},
      {"zephyr", {kEos}, kEos, {}, false, write_zephyr, open_zephyr},
  };
  return families;
}

}  // namespace lockstep::data
