// What each chat template writes, as its family published it for transformers' apply_chat_template
// (tests/reference/chat_template_test.py holds them against it).
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "data/prepare/conversation.h"
#include "data/prepare/passage.h"

namespace lockstep::data {

// Takes down passages.
class ChatWriter {
 public:
  explicit ChatWriter(const std::map<std::string, uint32_t>& tokens) : tokens_(tokens) {}
  // A token that the tokenizer does not have is missing().
  void token(const char* name, bool in_loss = false);
  void words(std::string text, bool in_loss = false);
  // Words that are tokenized together with those before them, if no token stands between.
  void more(const std::string& text);
  const std::string& missing() const { return missing_; }
  std::vector<Passage> take() { return std::move(passages_); }

 private:
  const std::map<std::string, uint32_t>& tokens_;
  std::vector<Passage> passages_;
  std::string missing_;
};

struct ChatFamily {
  const char* name;
  std::vector<const char*> tokens;       // that each conversation needs
  const char* end_of_answer;             // one of them
  std::vector<const char*> tool_tokens;  // that one with tools needs as well
  bool takes_tools;
  // Requires: roles are system, user, assistant, and tool where it takes tools.
  Result<void> (*write)(const Conversation& chat, ChatWriter& out);
  void (*open_answer)(ChatWriter& out);
};

std::span<const ChatFamily> chat_families();

}  // namespace lockstep::data
