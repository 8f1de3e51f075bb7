// The texts are the families' own, shortened to what tells them apart;
// tests/reference/chat_template_test.py has them whole.
#include "data/prepare/chat_recognition.h"

#include <map>

#include "tests/unit/data/data_test_support.h"

namespace lockstep::data {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kChatMl =
    R"({% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + )"
    R"(message['content'] + '<|im_end|>' + '\n'}}{% endfor %})"
    R"({% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %})";

const std::map<std::string, std::string>& texts() {
  static const std::map<std::string, std::string> all = {
      {"chatml", kChatMl},
      {"qwen2", std::string("{% for message in messages %}{% if loop.first and "
                            "messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\nYou are a "
                            "helpful assistant.<|im_end|>\\n' }}{% endif %}") +
                    kChatMl},
      {"llama3",
       R"({% for message in messages %}{% set content = '<|start_header_id|>' + message['role'] + )"
       R"('<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 )"
       R"(== 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %})"},
      {"gemma",
       R"({{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role )"
       R"(not supported') }}{% endif %}{% for message in messages %}{{ '<start_of_turn>' + role + )"
       R"('\n' + message['content'] | trim + '<end_of_turn>\n' }}{% endfor %})"},
      {"zephyr",
       "{% for message in messages %}\n{% if message['role'] == 'user' %}\n{{ '<|user|>\\n' + "
       "message['content'] + eos_token }}\n{% elif message['role'] == 'system' %}\n{{ "
       "'<|system|>\\n' + message['content'] + eos_token }}\n{% elif message['role'] == "
       "'assistant' %}\n{{ '<|assistant|>\\n'  + message['content'] + eos_token }}\n{% endif %}"},
      {"mistral",
       R"({{- bos_token }}{%- for message in loop_messages %}{%- if message["role"] == "user" %})"
       R"({{- "[INST]" + message["content"] + "[/INST]" }}{%- else %})"
       R"({{- message["content"] + eos_token}}{%- endif %}{%- endfor %})"}};
  return all;
}

TEST(ChatRecognition, KnowsAFamilyByItsText) {
  for (const auto& [name, jinja] : texts()) {
    const auto found = recognised_chat_template(jinja);
    ASSERT_TRUE(found.ok()) << name << ": " << message_of(found);
    EXPECT_EQ(found.value(), name);
  }
}

TEST(ChatRecognition, AnotherTextIsNamedWithTheFamilyThatItComesNear) {
  const auto said = [](const std::string& jinja) {
    return message_of(recognised_chat_template(jinja));
  };
  EXPECT_THAT(said("{{ messages }}"), HasSubstr("not one that Lockstep knows (chatml, gemma"));
  EXPECT_THAT(said(std::string(kChatMl) + "{{ 'You are a pirate.' }}"),
              AllOf(HasSubstr("resembles chatml"), HasSubstr("it has \"You are\"")));
  EXPECT_THAT(said(std::string(kChatMl) + "<|im_sep|>"), HasSubstr("the token <|im_sep|>"));
  EXPECT_THAT(said(R"({{ '[INST] ' + message['content'] + ' [/INST]' + eos_token }})"),
              AllOf(HasSubstr("resembles mistral"), HasSubstr("\"[INST] \"")));
  EXPECT_THAT(said(texts().at("mistral") + "[SYSTEM_PROMPT]"), HasSubstr("[SYSTEM_PROMPT]"));
}

class ChatFolderTest : public testing::Test {
 protected:
  const test_support::TempDir temp_;
  const std::filesystem::path dir_ = temp_.path();
  void config(const std::string& json) { write_text(dir_ / "tokenizer_config.json", json); }
  std::string resolved(const std::string& tokenizer) {
    const auto found = resolved_chat_template(posix_file_system(), "auto", tokenizer);
    return found.ok() ? found.value() : "error: " + found.error().message;
  }
};

TEST_F(ChatFolderTest, TheTemplateStandsBesideTheTokenizer) {
  EXPECT_THAT(resolved(dir_.string()),
              AllOf(HasSubstr("has no chat template"), HasSubstr("--chat-template NAME")));
  config(R"({"chat_template": "{{ '<|im_start|>' + message + '<|im_end|>' }}"})");
  EXPECT_EQ(resolved(dir_.string()), "chatml");
  EXPECT_EQ(resolved((dir_ / "tokenizer.json").string()), "chatml");
  config(R"({"chat_template": [{"name": "tool_use", "template": "x"}, {"name": "default", )"
         R"("template": "{{ '<|im_start|>' + message + '<|im_end|>' }}"}]})");
  EXPECT_EQ(resolved(dir_.string()), "chatml");
  write_text(dir_ / "chat_template.jinja", texts().at("llama3"));
  EXPECT_EQ(resolved(dir_.string()), "llama3") << "it comes before tokenizer_config.json's";
  write_text(dir_ / "chat_template.jinja", "{{ messages }}");
  EXPECT_THAT(resolved(dir_.string()),
              AllOf(HasSubstr("chat_template.jinja: the chat template of this tokenizer is not one "
                              "that Lockstep knows"),
                    HasSubstr("give --chat-template NAME, one of chatml")));
}

TEST_F(ChatFolderTest, WhatIsDamagedIsNamed) {
  config("[");
  EXPECT_THAT(resolved(dir_.string()), HasSubstr("tokenizer_config.json is not a JSON object"));
  config(R"({"chat_template": [{"name": "rag", "template": "x"}]})");
  EXPECT_THAT(resolved(dir_.string()), HasSubstr("or a list with a \"default\""));
  EXPECT_THAT(resolved("byte"), HasSubstr("this tokenizer has none"));
}

}  // namespace
}  // namespace lockstep::data
