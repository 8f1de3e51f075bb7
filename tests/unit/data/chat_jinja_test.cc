#include "data/prepare/chat_jinja.h"

#include <gtest/gtest.h>

#include "data/prepare/chat_recognition.h"
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

TEST(ChatJinja, EachTemplateHasATextThatIsKnownAgain) {
  for (const ChatTemplateText& known : chat_template_texts()) {
    ASSERT_TRUE(ChatTemplate::token_names(known.name).ok()) << known.name;
    for (const char* const begin : {"", "<s>", "<|startoftext|>", "it's \\ odd"}) {
      const std::string jinja = chat_template_in_jinja(known.name, Beginning(begin));
      const auto name = recognised_chat_template(jinja);
      ASSERT_TRUE(name.ok()) << known.name << " with " << begin << ": " << name.error().message;
      EXPECT_EQ(name.value(), known.name) << begin;
    }
    EXPECT_EQ(name_of_written_template(known.jinja), known.name);
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

TEST(ChatJinja, OtherLinesBeforeTheTextAreAnotherTemplate) {
  const std::string body = chat_template_in_jinja("chatml", Beginning(""));
  EXPECT_EQ(name_of_written_template("You are odd.\n" + body), "");
  EXPECT_EQ(name_of_written_template("{%- set x = '' %}\n" + body), "");
  EXPECT_EQ(name_of_written_template("{{- '<s>' }}" + body), "");
  EXPECT_EQ(name_of_written_template("{{- '<s>' }}\n{{- 'You are odd.' }}\n" + body), "");
  EXPECT_EQ(name_of_written_template(body + "\n"), "");
  EXPECT_EQ(name_of_written_template(""), "");
}

}  // namespace
}  // namespace lockstep::data
