#include "data/prepare/chat_template.h"

#include <algorithm>

#include "base/text.h"

namespace lockstep::data {

namespace {

Passage token(uint32_t id, bool in_loss) { return {id, "", in_loss, SpecialNames::kAreText}; }
Passage words(std::string text, bool in_loss) {
  return {std::nullopt, std::move(text), in_loss, SpecialNames::kAreText};
}
bool is_answer(const Message& message) { return message.role == "assistant"; }

std::string trimmed(const std::string& text) {
  constexpr const char* kSpaces = " \t\r\n\v\f";
  const size_t first = text.find_first_not_of(kSpaces);
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(kSpaces) - first + 1);
}

// The system message goes before the last user's; then the two take turns.
Result<std::vector<Message>> mistral_turns(std::vector<Message> messages) {
  if (messages[0].role == "system") {
    const auto last = std::find_if(messages.rbegin(), messages.rend(),
                                   [](const Message& each) { return each.role == "user"; });
    if (last == messages.rend()) return Error{Code::kConfig, "a system message without a user's"};
    last->content = messages[0].content + "\n\n" + last->content;
    messages.erase(messages.begin());
  }
  for (size_t i = 0; i < messages.size(); ++i)
    if (messages[i].role != (i % 2 == 0 ? "user" : "assistant"))
      return Error{Code::kConfig, text("the mistral template takes turns of user and assistant; "
                                       "message ",
                                       i + 1, " is the ", messages[i].role, "'s")};
  return messages;
}

}  // namespace

Result<std::vector<std::string>> ChatTemplate::token_names(const std::string& name) {
  if (name == "llama3")
    return std::vector<std::string>{"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"};
  if (name == "chatml") return std::vector<std::string>{"<|im_start|>", "<|im_end|>"};
  if (name == "mistral") return std::vector<std::string>{"[INST]", "[/INST]", "</s>"};
  return Error{Code::kConfig,
               text("unknown chat template \"", name, "\"; known: llama3, chatml, mistral")};
}

Result<ChatTemplate> ChatTemplate::create(const std::string& name, const Tokenizer& tokenizer) {
  LOCKSTEP_TRY(const std::vector<std::string> names, token_names(name));
  ChatTemplate made;
  made.kind_ = name == "llama3" ? Kind::kLlama3 : name == "chatml" ? Kind::kChatMl : Kind::kMistral;
  for (const std::string& each : names) {
    const auto id = tokenizer.special_id(each);
    if (!id)
      return Error{Code::kConfig,
                   text("the chat template ", name, " needs the token ", each,
                        ", which the tokenizer (", tokenizer.name(), ") does not have")};
    made.tokens_.push_back(*id);
  }
  return made;
}

Result<std::vector<Passage>> ChatTemplate::passages(std::vector<Message> messages) const {
  if (std::none_of(messages.begin(), messages.end(), is_answer))
    return Error{Code::kConfig, "the assistant says nothing: there is nothing to learn"};
  for (const Message& message : messages)
    if (message.role != "system" && message.role != "user" && message.role != "assistant")
      return Error{Code::kConfig,
                   text("role \"", message.role, "\" is not system, user or assistant")};
  if (kind_ == Kind::kMistral) {
    LOCKSTEP_TRY(messages, mistral_turns(std::move(messages)));
  }
  std::vector<Passage> all;
  for (const Message& message : messages) {
    if (kind_ == Kind::kLlama3) add_llama3(message, all);
    if (kind_ == Kind::kChatMl) add_chatml(message, all);
    if (kind_ == Kind::kMistral) add_mistral(message, all);
  }
  return all;
}

void ChatTemplate::add_llama3(const Message& message, std::vector<Passage>& passages) const {
  const bool answer = is_answer(message);
  passages.push_back(token(tokens_[0], false));
  passages.push_back(words(message.role, false));
  passages.push_back(token(tokens_[1], false));
  passages.push_back(words("\n\n", false));
  passages.push_back(words(trimmed(message.content), answer));
  passages.push_back(token(tokens_[2], answer));
}

void ChatTemplate::add_chatml(const Message& message, std::vector<Passage>& passages) const {
  const bool answer = is_answer(message);
  passages.push_back(token(tokens_[0], false));
  if (answer) {
    passages.push_back(words(message.role + "\n", false));
    passages.push_back(words(message.content, true));
  } else {
    passages.push_back(words(message.role + "\n" + message.content, false));
  }
  passages.push_back(token(tokens_[1], answer));
  passages.push_back(words("\n", false));
}

void ChatTemplate::add_mistral(const Message& message, std::vector<Passage>& passages) const {
  if (is_answer(message)) {
    passages.push_back(words(message.content, true));
    passages.push_back(token(tokens_[2], true));
  } else {
    passages.push_back(token(tokens_[0], false));
    passages.push_back(words(message.content, false));
    passages.push_back(token(tokens_[1], false));
  }
}

}  // namespace lockstep::data
