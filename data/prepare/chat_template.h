// A conversation as the passages that a model is trained on: what the family's template puts around
// each message, and which of it counts in the loss. Only what the assistant says counts, with the
// token that ends it.
//
//   llama3    <|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>
//   chatml    <|im_start|>user\nHi<|im_end|>\n
//   mistral   [INST]Hi[/INST]Hello</s>      (a system message goes before the last user's, with two
//             line ends between)
//
// Special tokens go in by id and contents as plain text, so a message cannot forge a token. Each
// answer is tokenized alone, as it is when a model writes it after its prompt.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "data/tokenizer/tokenizer.h"

namespace lockstep::data {

struct Passage {
  std::optional<uint32_t> token;  // a special token; else `words`
  std::string words;
  bool in_loss = true;
  SpecialNames names = SpecialNames::kAreText;
};

struct Message {
  std::string role, content;  // "system", "user", "assistant"
};

class ChatTemplate {
 public:
  // The special tokens of the template `name`: "llama3", "chatml", "mistral". Errors: kConfig,
  // another name.
  static Result<std::vector<std::string>> token_names(const std::string& name);
  // Errors: kConfig, another name; a tokenizer without one
  // of the template's tokens.
  static Result<ChatTemplate> create(const std::string& name, const Tokenizer& tokenizer);
  // Errors: kConfig, an unknown role, an order that the template has no words for, nothing that the
  // assistant says.
  Result<std::vector<Passage>> passages(std::vector<Message> messages) const;

 private:
  enum class Kind { kLlama3, kChatMl, kMistral };
  void add_llama3(const Message& message, std::vector<Passage>& passages) const;
  void add_chatml(const Message& message, std::vector<Passage>& passages) const;
  void add_mistral(const Message& message, std::vector<Passage>& passages) const;
  Kind kind_ = Kind::kLlama3;
  std::vector<uint32_t> tokens_;  // the template's, in its own order
};

}  // namespace lockstep::data
