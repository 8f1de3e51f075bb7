#include "data/prepare/chat_jinja.h"

#include <gtest/gtest.h>

#include "data/prepare/chat_template.h"
#include "data/prepare/chat_template_texts.h"

namespace lockstep::data {
namespace {

// A tokenizer that puts one token before every text, whose name can be anything.
class Beginning : public Tokenizer {
 public:
  explicit Beginning(std::string name) : name_(std::move(name)) {}
  std::string name() const override { return "beginning"; }
  std::string hash() const override { return ""; }
  int64_t vocab_size() const override { return 1; }
  uint32_t end_of_document() const override { return 0; }
  std::span<const uint32_t> begin_of_document() const override {
    return {&id_, name_.empty() ? 0u : 1u};
  }
  std::optional<uint32_t> special_id(std::string_view) const override { return 0; }
  Result<void> encode(std::string_view, std::vector<uint32_t>&, SpecialNames) const override {
    return {};
  }
  Result<std::string> decode(std::span<const uint32_t> ids, bool) const override {
    return ids.empty() ? "" : name_;
  }

 private:
  const uint32_t id_ = 0;
  const std::string name_;
};

TEST(ChatJinja, EachTemplateHasAText) {
  for (const ChatTemplateText& known : chat_template_texts()) {
    ASSERT_TRUE(ChatTemplate::token_names(known.name).ok()) << known.name;
  }
  std::string listed;
  for (const ChatTemplateText& known : chat_template_texts())
    listed += (listed.empty() ? "" : ", ") + std::string(known.name);
  EXPECT_EQ(listed, ChatTemplate::known_names());
}

TEST(ChatJinja, WhatTheTokenizerPutsFirstIsSaidByTheTextItself) {
  for (const ChatTemplateText& known : chat_template_texts()) {
    EXPECT_EQ(chat_template_in_jinja(known.name, Beginning("")), known.jinja);
    EXPECT_EQ(chat_template_in_jinja(known.name, Beginning("it's")),
              std::string("{{- 'it\\'s' }}\n") + known.jinja);
    // Else a line's end would stand between the two.
    EXPECT_TRUE(std::string_view(known.jinja).starts_with("{%-")) << known.name;
  }
}

}  // namespace
}  // namespace lockstep::data
