#include "data/prepare/chat_template.h"

#include <map>

#include "base/text.h"
#include "tests/unit/data/data_test_support.h"

namespace lockstep::data {
namespace {

using testing::HasSubstr;

// Every byte is its id; names become ids from 300 on.
class NamedTokenizer final : public Tokenizer {
 public:
  explicit NamedTokenizer(std::vector<std::string> names) : names_(std::move(names)) {}
  std::string name() const override { return "named"; }
  std::string hash() const override { return "0"; }
  int64_t vocab_size() const override { return 400; }
  uint32_t end_of_document() const override { return 256; }
  std::optional<uint32_t> special_id(std::string_view name) const override {
    for (size_t i = 0; i < names_.size(); ++i)
      if (names_[i] == name) return static_cast<uint32_t>(300 + i);
    return std::nullopt;
  }
  Result<void> encode(std::string_view, std::vector<uint32_t>&, SpecialNames) const override {
    return {};
  }
  Result<std::string> decode(std::span<const uint32_t>, bool) const override {
    return std::string();
  }
  const std::vector<std::string> names_;
};

// The passages as text; what counts in the loss in [ ].
std::string shown(const char* name, const std::vector<Message>& messages) {
  const NamedTokenizer tokenizer({"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
                                  "<|im_start|>", "<|im_end|>", "[INST]", "[/INST]", "</s>"});
  const auto chat = ChatTemplate::create(name, tokenizer);
  EXPECT_TRUE(chat.ok()) << message_of(chat);
  const auto passages = chat.value().passages(messages);
  if (!passages.ok()) return "error: " + passages.error().message;
  std::string all;
  for (const Passage& each : passages.value()) {
    EXPECT_EQ(each.names, SpecialNames::kAreText);
    const std::string words = each.token ? tokenizer.names_[*each.token - 300] : each.words;
    all += each.in_loss ? "[" + words + "]" : words;
  }
  return all;
}

TEST(ChatTemplate, OnlyAnswersAndTheirEndsCount) {
  const std::vector<Message> messages = {{"system", "Be brief."},
                                         {"user", " Hi\n"},
                                         {"assistant", "Hello"},
                                         {"user", "2+2"},
                                         {"assistant", "4"}};
  EXPECT_EQ(shown("llama3", messages),
            "<|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n[Hello][<|eot_id|>]"
            "<|start_header_id|>user<|end_header_id|>\n\n2+2<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n[4][<|eot_id|>]");
  EXPECT_EQ(shown("chatml", messages),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n Hi\n<|im_end|>\n"
            "<|im_start|>assistant\n[Hello][<|im_end|>]\n<|im_start|>user\n2+2<|im_end|>\n"
            "<|im_start|>assistant\n[4][<|im_end|>]\n");
  EXPECT_EQ(shown("mistral", messages),
            "[INST] Hi\n[/INST][Hello][</s>][INST]Be brief.\n\n2+2[/INST][4][</s>]");
}

TEST(ChatTemplate, WhatIsUnknownIsAnError) {
  const NamedTokenizer tokenizer({"<|im_start|>"});
  EXPECT_THAT(message_of(ChatTemplate::create("alpaca", tokenizer)), HasSubstr("\"alpaca\""));
  EXPECT_THAT(message_of(ChatTemplate::create("chatml", tokenizer)), HasSubstr("<|im_end|>"));
  EXPECT_THAT(shown("chatml", {{"user", "x"}}), HasSubstr("nothing to learn"));
  EXPECT_THAT(shown("chatml", {{"tool", "x"}, {"assistant", "y"}}), HasSubstr("role \"tool\""));
  EXPECT_THAT(shown("mistral", {{"assistant", "y"}}), HasSubstr("takes turns"));
  EXPECT_THAT(shown("mistral", {{"user", "x"}, {"user", "x"}, {"assistant", "y"}}),
              HasSubstr("message 2"));
}

}  // namespace
}  // namespace lockstep::data
