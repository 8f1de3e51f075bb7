// A conversation as the passages that a model is trained on: what the family's template puts around
// each message, and which of it counts in the loss. Only what the assistant says counts, its calls
// of tools among it, with the token that ends it. What tools answer does not.
//
//   chatml    <|im_start|>user\nHi<|im_end|>\n
//   qwen2     chatml, and where no system message comes first "You are a helpful assistant." is one
//   qwen2.5   the same with "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.";
//             tools
//   qwen3     chatml with tools; the last answer begins with what was thought (<think>…</think>)
//   llama3    <|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>
//   llama3.1  the same, and a system message with two dates comes first; tools
//   mistral   [INST]Hi[/INST]Hello</s>      (a system message goes before the last user's, with two
//             line ends between); tools
//   gemma     <start_of_turn>user\nHi<end_of_turn>\n   no system message
//   gemma3    the same, and a system message goes before the first user's
//   zephyr    <|user|>\nHi</s>\n
//
// Special tokens go in by id and contents as plain text, so a message cannot forge a token. Words
// between two special tokens are tokenized together, as transformers does it.
//
// A template of a folder may be rendered by Jinja (data/prepare/jinja_template.h): all of it, or
// what its family does not take. As in transformers, the whole text is then tokenized with its
// special tokens, and the name of one in a message is that token.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "data/prepare/conversation.h"
#include "data/prepare/jinja_template.h"
#include "data/prepare/passage.h"
#include "data/tokenizer/tokenizer.h"

namespace lockstep::data {

// Takes those answers out of the loss that are not to be learnt (Message::learnt). `passages` are
// those of `chat`, with all answers in the loss. Errors: kConfig, two answers follow each other
// without anything between.
Result<void> leave_out_unlearnt(const Conversation& chat, std::vector<Passage>& passages);

struct ChatFamily;  // data/prepare/chat_families.h

class ChatTemplate {
 public:
  // "chatml, gemma, …"
  static std::string known_names();
  // The special tokens that each conversation of the template `name` needs. Errors: kConfig,
  // another name.
  static Result<std::vector<std::string>> token_names(const std::string& name);
  // `jinja`: renders all conversations, if `name` is its name; else those that the family does not
  // take. Errors: kConfig, another name; a tokenizer without one of the template's tokens.
  static Result<ChatTemplate> create(const std::string& name, const Tokenizer& tokenizer,
                                     std::shared_ptr<const JinjaTemplate> jinja = nullptr);

  // Errors: kConfig, a role or a call of a tool for which the template has no words, an order that
  // it does not take, nothing that the assistant says; each names the message.
  Result<std::vector<Passage>> passages(const Conversation& chat) const;
  // What a model goes on from: all of `chat`, and what stands before the assistant's next answer.
  // Errors: as above, but the assistant may have said nothing yet.
  Result<std::vector<Passage>> prompt(const Conversation& chat) const;
  // The token after an answer; where Jinja writes none, the end of a document.
  uint32_t end_of_answer() const { return end_of_answer_; }

 private:
  Result<std::vector<Passage>> by_family(const Conversation& chat, bool is_prompt) const;
  Result<std::vector<Passage>> by_jinja(const Conversation& chat, bool is_prompt) const;
  Result<std::vector<Passage>> written(const Conversation& chat, bool is_prompt) const;

  const ChatFamily* family_ = nullptr;          // null: Jinja alone
  std::shared_ptr<const JinjaTemplate> jinja_;  // null: the family alone
  uint32_t end_of_answer_ = 0;
  std::string end_name_;                    // of end_of_answer_
  std::map<std::string, uint32_t> tokens_;  // those of the family that the tokenizer has
};

}  // namespace lockstep::data
