#include "data/prepare/jinja_template.h"

#include "tests/unit/data/chat_folder.h"

namespace lockstep::data {
namespace {

using testing::HasSubstr;

const std::vector<Message> kChat = {
    {"user", "é"}, {"assistant", "b"}, {"user", "c"}, {"assistant", "d"}};

// Why the template refuses kChat, with limits that a test can reach.
std::string refusal(const std::string& jinja) {
  const auto made = JinjaTemplate::create({"template", jinja, "{}"}, "", cli::jinja_python(),
                                          {.cpu_s = 1, .memory_mib = 256, .text_bytes = 1 << 16});
  return made.ok() ? message_of(made.value()->render({kChat})) : message_of(made);
}

TEST(JinjaTemplate, TheHeaderOfAnAnswerIsNotLearntWithoutAGenerationPrompt) {
  EXPECT_EQ(ChatFolder("{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>\n{% endfor %}")
                .shown(kChat),
            "<user>é</s>\n<assistant>[b</s>]\n<user>c</s>\n<assistant>[d</s>]\n");
}

TEST(JinjaTemplate, AnAnswerMayBeginOtherwiseThanThePromptDoes) {
  EXPECT_EQ(ChatFolder("{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}"
                       "{% if add_generation_prompt %}<assistant><think>{% endif %}")
                .shown(kChat),
            "<user>é</s><assistant>[b</s>]<user>c</s><assistant>[d</s>]");
}

TEST(JinjaTemplate, AnAnswerThatIsNotToBeLearntIsLeftOut) {
  std::vector<Message> chat = kChat;
  chat[1].learnt = false;
  EXPECT_EQ(ChatFolder("{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}")
                .shown(chat),
            "<user>é</s><assistant>b</s><user>c</s><assistant>[d</s>]");
}

TEST(JinjaTemplate, ATokenAcrossTheBeginningOfAnAnswerIsLearnt) {
  EXPECT_EQ(ChatFolder("{% for m in messages %}{{ m.content }}{% endfor %}")
                .shown({{"user", "h"}, {"assistant", "ello"}, {"user", "h"}}),
            "[hello]h");
}

TEST(JinjaTemplate, EarlierTurnsMustStay) {
  EXPECT_THAT(refusal("{% for m in messages %}{{ m.content if loop.last else m.role }}|"
                      "{% endfor %}"),
              HasSubstr("the template rewrites message 2 when later messages follow it"));
}

TEST(JinjaTemplate, LimitsAndTheSandboxHold) {
  EXPECT_THAT(refusal("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}"
                      "{% endfor %}"),
              HasSubstr("more than 1 s of CPU time"));
  EXPECT_THAT(refusal("{% for i in range(99999) %}{{ messages }}{% endfor %}"),
              HasSubstr("writes more than 65536 bytes"));
  EXPECT_THAT(refusal("{{ (messages[0].content * 999999999) | length }}"),
              HasSubstr("more than 256 MiB of memory"));
  EXPECT_THAT(refusal("{{ messages.__class__.__mro__ }}"), HasSubstr("sandbox forbids"));
  EXPECT_THAT(refusal("{{ raise_exception('no such thing') }}"), HasSubstr("no such thing"));
  EXPECT_THAT(refusal("{% if %}"), HasSubstr("template: the template is not valid Jinja: line 1"));
  EXPECT_THAT(refusal("{{ 1 + messages }}"), HasSubstr("the template fails: TypeError"));
}

TEST(JinjaTemplate, TodayIsADateThatIsGiven) {
  const ChatFolder folder(
      "{{ strftime_now('%d %b %Y') }}: {% for m in messages %}{{ m.content }}"
      "</s>{% endfor %}");
  EXPECT_THAT(folder.shown(kChat), HasSubstr("--chat-date YYYY-MM-DD"));
  EXPECT_EQ(folder.shown(kChat, "2026-01-31"), "31 Jan 2026: é</s>[b</s>]c</s>[d</s>]");
  const std::string name = folder.found("2026-01-31").value().name;
  EXPECT_EQ(JinjaTemplate::date_in(name), "2026-01-31");
  EXPECT_EQ(JinjaTemplate::date_in(folder.found().value().name), "");
  EXPECT_EQ(JinjaTemplate::date_in("chatml"), std::nullopt);
}

TEST(JinjaTemplate, CallsAndToolsAreObjectsAsInTransformers) {
  const ChatFolder folder(
      "{% for t in tools %}{{ t.name }} {% endfor %}{% for m in messages %}"
      "{% for c in m.tool_calls %}{{ c.function.arguments | tojson }}"
      "{% endfor %}{{ m.content }}</s>{% endfor %}");
  Message call{"assistant", ""};
  call.calls = {{"f", R"({"b": "ü<", "a": 1})", ""}};
  call.content_is = ContentIs::kAbsent;
  const auto passages =
      folder.chat().value().passages({{{"user", "hi"}, call}, {R"({"name": "f"})"}});
  ASSERT_TRUE(passages.ok()) << message_of(passages);
  std::string all;
  for (const Passage& each : passages.value()) all += each.words;
  EXPECT_EQ(all, R"(f hi</s>{"b": "ü<", "a": 1}</s>)");
}

}  // namespace
}  // namespace lockstep::data
