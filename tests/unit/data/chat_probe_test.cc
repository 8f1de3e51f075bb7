#include "data/prepare/chat_probe.h"

#include "data/prepare/chat_jinja.h"
#include "tests/unit/data/chat_folder.h"

namespace lockstep::data {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

const std::string kChatMl =
    R"({% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + )"
    R"(message['content'] + '<|im_end|>' + '\n'}}{% endfor %})"
    R"({% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %})";
// The signs of zephyr. The end of an answer alone has a token, as in OLMo 2 and Tülu 3.
const std::string kTulu =
    R"({{ bos_token }}{% for message in messages %}{% if message['role'] == 'system' %})"
    R"({{ '<|system|>\n' + message['content'] + '\n' }}{% elif message['role'] == 'user' %})"
    R"({{ '<|user|>\n' + message['content'] + '\n' }}{% elif message['role'] == 'assistant' %})"
    R"({{ '<|assistant|>\n' + message['content'] + eos_token + ('' if loop.last else '\n') }})"
    R"({% endif %}{% if loop.last and add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %})"
    R"({% endfor %})";
// The signs of chatml, and a system message that goes without its role, as in Yi.
const std::string kYi =
    R"({% if messages[0]['role'] == 'system' %}{{ messages[0]['content'] }}{% set messages = )"
    R"(messages[1:] %}{% endif %})" +
    kChatMl;
// The signs of qwen2 with other words of the system, as in Marco-o1.
const std::string kMarco =
    R"({% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\n你是小马.<|im_end|>\n' }})"
    R"({% endif %})" +
    kChatMl;

std::string found_name(const std::string& jinja) {
  const auto found = ChatFolder(jinja).found();
  return found.ok() ? found.value().name : "error: " + found.error().message;
}

TEST(ChatProbe, PublishedTemplatesRenderAsTheirFamilies) {
  const std::filesystem::path folder =
      std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "tests/reference/chat_templates";
  for (const char* const name : {"chatml", "qwen2", "qwen2.5", "qwen3"})
    EXPECT_EQ(found_name(contents_of(folder / text(name, ".jinja"))), name);
}

TEST(ChatProbe, TheSameTextInOtherWordsOfJinjaIsTheSameFamily) {
  EXPECT_EQ(found_name(R"({%- macro turn(m) -%}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endmacro -%}
{%- for m in messages %}{{ turn(m) }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant' ~ '\n' }}{% endif %})"),
            "chatml");
}

TEST(ChatProbe, WhatRendersOtherwiseIsNoFamilys) {
  for (const std::string& jinja : {kTulu, kYi, kMarco, "<s>" + kChatMl})
    EXPECT_THAT(found_name(jinja), StartsWith("jinja:")) << jinja;
  const std::vector<Message> chat = {{"user", "hi"}, {"assistant", "yes"}};
  EXPECT_EQ(ChatFolder(kTulu).shown(chat), "<s><|user|>\nhi\n<|assistant|>\n[yes</s>]");
  EXPECT_EQ(ChatFolder(kMarco).shown(chat),
            "<|im_start|>system\n你是小马.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n"
            "<|im_start|>assistant\n[yes<|im_end|>]\n");
  EXPECT_EQ(ChatFolder(kYi).shown({{"system", "s"}, chat[0], chat[1]}),
            "s<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n[yes<|im_end|>]\n");
}

TEST(ChatProbe, BlocksOfGenerationSayWhatIsLearnt) {
  const std::string trl =
      R"({% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% if m.role == 'assistant' %})"
      R"({% generation %}{{ m.content + '<|im_end|>\n' }}{% endgeneration %}{% else %})"
      R"({{ m.content + '<|im_end|>\n' }}{% endif %}{% endfor %})";
  EXPECT_EQ(ChatFolder(trl).shown({{"user", "hi"}, {"assistant", "yes"}, {"user", "so"}}),
            "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n[yes<|im_end|>\n]"
            "<|im_start|>user\nso<|im_end|>\n");
}

TEST(ChatProbe, JinjaRendersWhatTheFamilyDoesNotTake) {
  const ChatFolder folder(kChatMl);
  EXPECT_EQ(folder.found().value().name, "chatml");
  EXPECT_EQ(folder.shown({{"user", "hi"}, {"tool", "t"}, {"assistant", "yes"}}),
            "<|im_start|>user\nhi<|im_end|>\n<|im_start|>tool\nt<|im_end|>\n"
            "<|im_start|>assistant\n[yes<|im_end|>]\n");
}

TEST(ChatProbe, TheTextsOfLockstepAreKnownWithoutPython) {
  const ChatFolder folder("{{ messages }}");
  write_text(folder.path() / "chat_template.jinja",
             chat_template_in_jinja("chatml", folder.tokenizer()));
  const auto no_python = [](const std::string&) -> Result<std::unique_ptr<LineAnswers>> {
    return Error{Code::kConfig, "no Python here"};
  };
  auto found =
      find_chat_template(posix_file_system(), folder.path(), folder.tokenizer(), "", no_python);
  ASSERT_TRUE(found.ok()) << message_of(found);
  EXPECT_EQ(found.value().name, "chatml");
  write_text(folder.path() / "chat_template.jinja", kYi);
  found = find_chat_template(posix_file_system(), folder.path(), folder.tokenizer(), "", no_python);
  EXPECT_THAT(message_of(found),
              AllOf(HasSubstr("no Python here"), HasSubstr("give --chat-template NAME, one of")));
}

TEST(ChatProbe, AFolderWithoutATemplateAndADamagedOneAreNamed) {
  const ChatFolder folder(kChatMl);
  const auto config = folder.path() / "tokenizer_config.json";
  write_text(config, R"({"chat_template": [{"name": "rag", "template": "x"}]})");
  EXPECT_THAT(message_of(folder.found()), HasSubstr("or a list with a \"default\""));
  EXPECT_TRUE(posix_file_system().remove(config).ok());
  EXPECT_THAT(message_of(folder.found()),
              AllOf(HasSubstr("has no chat template"), HasSubstr("give --chat-template NAME")));
}

}  // namespace
}  // namespace lockstep::data
