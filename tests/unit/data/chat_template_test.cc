#include "data/prepare/chat_template.h"

#include <map>

#include "base/text.h"
#include "data/prepare/chat_families.h"
#include "data/prepare/record.h"
#include "tests/unit/data/data_test_support.h"

namespace lockstep::data {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

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

// Of all families, those of tools among them.
NamedTokenizer tokenizer_of_all() {
  std::vector<std::string> names;
  for (const ChatFamily& family : chat_families())
    for (const auto& tokens : {family.tokens, family.tool_tokens})
      names.insert(names.end(), tokens.begin(), tokens.end());
  return NamedTokenizer(std::move(names));
}

// The passages as text; what counts in the loss in [ ].
std::string shown(const Result<std::vector<Passage>>& passages, const NamedTokenizer& tokenizer) {
  if (!passages.ok()) return "error: " + passages.error().message;
  std::string all;
  for (const Passage& each : passages.value()) {
    EXPECT_EQ(each.names, SpecialNames::kAreText);
    const std::string words = each.token ? tokenizer.names_[*each.token - 300] : each.words;
    all += each.in_loss ? "[" + words + "]" : words;
  }
  return all;
}

std::string shown_chat(const char* name, const Conversation& chat) {
  const NamedTokenizer tokenizer = tokenizer_of_all();
  const auto made = ChatTemplate::create(name, tokenizer);
  EXPECT_TRUE(made.ok()) << message_of(made);
  return shown(made.value().passages(chat), tokenizer);
}
std::string shown(const char* name, const std::vector<Message>& messages) {
  return shown_chat(name, Conversation{messages});
}

const std::vector<Message> kMessages = {{"system", "Be brief."},
                                        {"user", " Hi\n"},
                                        {"assistant", "Hello"},
                                        {"user", "2+2"},
                                        {"assistant", "4"}};

TEST(ChatTemplate, OnlyAnswersAndTheirEndsCount) {
  EXPECT_EQ(shown("llama3", kMessages),
            "<|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n[Hello][<|eot_id|>]"
            "<|start_header_id|>user<|end_header_id|>\n\n2+2<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n[4][<|eot_id|>]");
  EXPECT_EQ(shown("chatml", kMessages),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n Hi\n<|im_end|>\n"
            "<|im_start|>assistant\n[Hello][<|im_end|>]\n<|im_start|>user\n2+2<|im_end|>\n"
            "<|im_start|>assistant\n[4][<|im_end|>]\n");
  EXPECT_EQ(shown("qwen2", kMessages), shown("chatml", kMessages));
  EXPECT_EQ(shown("qwen2.5", kMessages), shown("chatml", kMessages));
  EXPECT_EQ(shown("mistral", kMessages),
            "[INST] Hi\n[/INST][Hello][</s>][INST]Be brief.\n\n2+2[/INST][4][</s>]");
  EXPECT_EQ(shown("gemma3", kMessages),
            "<start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n"
            "<start_of_turn>model\n[Hello][<end_of_turn>]\n"
            "<start_of_turn>user\n2+2<end_of_turn>\n<start_of_turn>model\n[4][<end_of_turn>]\n");
  EXPECT_EQ(shown("zephyr", kMessages),
            "<|system|>\nBe brief.</s>\n<|user|>\n Hi\n</s>\n<|assistant|>\n[Hello][</s>]\n"
            "<|user|>\n2+2</s>\n<|assistant|>\n[4][</s>]\n");
}

TEST(ChatTemplate, WhiteSpaceAtAMessagesEndsIsUnicodes) {
  const std::vector<Message> spaced = {{"user", "\u3000\x1f a\u00a0z\u00a0"},
                                       {"assistant", "\u2003\n b\u0085\n"}};
  EXPECT_EQ(shown("gemma", spaced),
            "<start_of_turn>user\na\u00a0z<end_of_turn>\n"
            "<start_of_turn>model\n[b][<end_of_turn>]\n");
  EXPECT_THAT(shown("llama3", {{"user", " \u3000"}, {"assistant", ""}}),
              HasSubstr("<|end_header_id|>\n\n<|eot_id|>"));
}

TEST(ChatTemplate, ASystemMessageThatTheFamilyPutsFirst) {
  const std::vector<Message> alone = {{"user", "Hi"}, {"assistant", "Hello"}};
  EXPECT_THAT(shown("qwen2", alone),
              HasSubstr("<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"));
  EXPECT_THAT(shown("qwen2.5", alone),
              HasSubstr("system\nYou are Qwen, created by Alibaba Cloud."));
  EXPECT_THAT(shown("llama3.1", alone),
              HasSubstr("<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: "
                        "December 2023\nToday Date: 26 Jul 2024\n\n<|eot_id|>"));
  EXPECT_THAT(shown("qwen3", alone), Not(HasSubstr("system")));
}

TEST(ChatTemplate, TheLastAnswerOfQwen3BeginsWithWhatWasThought) {
  const std::vector<Message> twice = {{"user", "a"},
                                      {"assistant", "<think>\nhm\n</think>\n\nb"},
                                      {"user", "c"},
                                      {"assistant", "<think>\nso\n</think>\n\nd"}};
  EXPECT_EQ(shown("qwen3", twice),
            "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n[b][<|im_end|>]\n"
            "<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n"
            "[<think>\nso\n</think>\n\nd][<|im_end|>]\n");
  Message answer{"assistant", "d"};
  answer.thought = "so";
  EXPECT_THAT(shown("qwen3", {{"user", "c"}, answer}), HasSubstr("[<think>\nso\n</think>\n\nd]"));
  EXPECT_THAT(shown("qwen3", {{"user", "c"}, {"assistant", "d"}}),
              HasSubstr("[<think>\n\n</think>\n\nd]"));
}

// A question that a tool answers.
Conversation with_tools() {
  Message call{"assistant", ""};
  call.calls.push_back({"add", R"({"a": 1})", "abcdefghi"});
  Message result{"tool", "3"};
  result.call_id = "abcdefghi";
  return {{{"user", "1+2"}, call, result, {"assistant", "It is 3."}},
          {R"({"type": "function", "function": {"name": "add"}})"}};
}

TEST(ChatTemplate, CallsOfToolsCountAndWhatTheySayDoesNot) {
  EXPECT_THAT(shown_chat("qwen2.5", with_tools()),
              AllOf(HasSubstr("<tools>\n{\"type\": \"function\", \"function\": {\"name\": \"add\"}}"
                              "\n</tools>"),
                    HasSubstr("<|im_start|>assistant\n[<tool_call>\n{\"name\": \"add\", "
                              "\"arguments\": {\"a\": 1}}\n</tool_call>][<|im_end|>]\n"
                              "<|im_start|>user\n<tool_response>\n3\n</tool_response><|im_end|>\n"
                              "<|im_start|>assistant\n[It is 3.][<|im_end|>]\n")));
  EXPECT_THAT(shown_chat("llama3.1", with_tools()),
              AllOf(HasSubstr("Environment: ipython\nCutting Knowledge"),
                    HasSubstr("<|end_header_id|>\n\n[{\"name\": \"add\", \"parameters\": "
                              "{\"a\": 1}}][<|eot_id|>]<|start_header_id|>ipython<|end_header_id|>"
                              "\n\n\"3\"<|eot_id|>")));
  EXPECT_THAT(shown_chat("mistral", with_tools()),
              HasSubstr("[INST]1+2[/INST][[TOOL_CALLS]][[{\"name\": \"add\", \"arguments\": "
                        "{\"a\": 1}, \"id\": \"abcdefghi\"}]][</s>][TOOL_RESULTS]{\"content\": 3, "
                        "\"call_id\": \"abcdefghi\"}[/TOOL_RESULTS][It is 3.][</s>]"));
}

TEST(ChatTemplate, WhatAFamilyHasNoWordsForIsAnErrorThatNamesTheMessage) {
  for (const char* const name : {"chatml", "qwen2", "llama3", "gemma", "gemma3", "zephyr"}) {
    Conversation chat = with_tools();
    EXPECT_THAT(shown_chat(name, chat),
                AllOf(HasSubstr("message 2 has the role \"assistant\" and calls tools"),
                      HasSubstr(name), HasSubstr("use one of llama3.1, mistral, qwen2.5, qwen3")));
    chat.messages.erase(chat.messages.begin() + 1);
    EXPECT_THAT(shown_chat(name, chat), HasSubstr("message 2 has the role \"tool\""));
    chat.messages.erase(chat.messages.begin() + 1);
    EXPECT_THAT(shown_chat(name, chat), HasSubstr("\"tools\" are given"));
  }
  Conversation chat = with_tools();
  chat.messages[1].calls.push_back(chat.messages[1].calls[0]);
  EXPECT_THAT(shown_chat("llama3.1", chat), HasSubstr("message 2 calls 2 tools"));
  chat = with_tools();
  chat.messages[1].calls[0].id.clear();
  EXPECT_THAT(shown_chat("mistral", chat),
              HasSubstr("message 2 calls the tool \"add\" without an"));
  chat = with_tools();
  chat.messages[2].call_id.clear();
  EXPECT_THAT(shown_chat("mistral", chat), HasSubstr("message 3 of the role \"tool\" has no"));
  chat = with_tools();
  chat.messages.insert(chat.messages.begin(), {"assistant", "Hi"});
  EXPECT_THAT(shown_chat("llama3.1", chat), HasSubstr("the first user message"));
  chat.messages[0] = {"user", "Hi", {{"add", "{}", ""}}};
  EXPECT_THAT(shown_chat("qwen3", chat),
              HasSubstr("message 1 has the role \"user\" and calls tools"));
}

TEST(ChatTemplate, APromptEndsWhereTheAnswerBegins) {
  const NamedTokenizer tokenizer = tokenizer_of_all();
  const std::map<std::string, std::string> openings = {
      {"chatml", "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"},
      {"llama3",
       "user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant"
       "<|end_header_id|>\n\n"},
      {"mistral", "[INST]Hi[/INST]"},
      {"gemma", "<start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n"},
      {"zephyr", "<|user|>\nHi</s>\n<|assistant|>\n"}};
  for (const auto& [name, end] : openings) {
    const auto chat = ChatTemplate::create(name, tokenizer);
    ASSERT_TRUE(chat.ok()) << message_of(chat);
    const std::string all = shown(chat.value().prompt({{{"user", "Hi"}}}), tokenizer);
    EXPECT_TRUE(all.ends_with(end)) << all;
    EXPECT_FALSE(tokenizer.names_[chat.value().end_of_answer() - 300].empty());
  }
}

TEST(ChatTemplate, WhatIsUnknownIsAnError) {
  const NamedTokenizer tokenizer({"<|im_start|>"});
  EXPECT_THAT(message_of(ChatTemplate::create("alpaca", tokenizer)),
              AllOf(HasSubstr("\"alpaca\""), HasSubstr("chatml, gemma, ")));
  EXPECT_THAT(message_of(ChatTemplate::create("chatml", tokenizer)), HasSubstr("<|im_end|>"));
  EXPECT_THAT(shown("chatml", {{"user", "x"}}), HasSubstr("nothing to learn"));
  EXPECT_THAT(shown("chatml", {{"bot", "x"}, {"assistant", "y"}}),
              HasSubstr("message 1 has the role \"bot\""));
  EXPECT_THAT(shown("mistral", {{"assistant", "y"}}), HasSubstr("to alternate"));
  EXPECT_THAT(shown("mistral", {{"system", "s"}, {"user", "x"}, {"user", "x"}, {"assistant", "y"}}),
              HasSubstr("message 3"));
  EXPECT_THAT(shown("gemma", kMessages), HasSubstr("message 1 is from the system"));
  const NamedTokenizer no_tools({"[INST]", "[/INST]", "</s>"});
  const auto chat = ChatTemplate::create("mistral", no_tools);
  ASSERT_TRUE(chat.ok()) << message_of(chat);
  EXPECT_THAT(message_of(chat.value().passages(with_tools())), HasSubstr("need the token ["));
}

// As a record has it.
std::string parsed(const char* line) {
  const NamedTokenizer tokenizer = tokenizer_of_all();
  const std::optional<ChatTemplate> chat = ChatTemplate::create("qwen2.5", tokenizer).value();
  auto record = parse_record(line, RecordFormat{.chat_template = "qwen2.5"}, chat);
  if (!record.ok()) return "error: " + record.error().message;
  return shown(Result<std::vector<Passage>>(record->passages), tokenizer);
}

TEST(Conversation, CallsAndSchemasMayBeObjectsOrTheirTexts) {
  const std::string objects = parsed(
      R"({"tools": [{"name": "f", "list": [1, "é", {}]}], "messages": [{"role": "user", )"
      R"("content": "x"}, {"role": "assistant", "content": null, "tool_calls": [{"id": "1", )"
      R"("type": "function", "function": {"name": "f", "arguments": {"b": 1, "a": "\n"}}}]}]})");
  EXPECT_THAT(objects, AllOf(HasSubstr(R"({"name": "f", "list": [1, "é", {}]})"),
                             HasSubstr(R"("arguments": {"b": 1, "a": "\n"}})")));
  EXPECT_EQ(parsed(R"({"tools": "[{\"name\": \"f\", \"list\": [1, \"é\", {}]}]", "messages": )"
                   R"([{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": )"
                   R"([{"name": "f", "arguments": "{\"b\":1,\"a\":\"\\n\"}"}]}]})"),
            objects);
}

TEST(Conversation, WhatIsNoCallIsSaid) {
  const auto with_call = [](const std::string& call) {
    return parsed((R"({"messages": [{"role": "assistant", "tool_calls": )" + call + "}]}").c_str());
  };
  EXPECT_THAT(with_call("{}"), HasSubstr("\"tool_calls\" is not a list"));
  EXPECT_THAT(with_call("[1]"), HasSubstr("a tool call is not an object"));
  EXPECT_THAT(with_call(R"([{"name": "f"}])"), HasSubstr("has no \"arguments\""));
  EXPECT_THAT(with_call(R"([{"name": "f", "arguments": "[1"}])"),
              HasSubstr("the arguments of the tool call \"f\" are not a JSON object"));
  EXPECT_THAT(parsed(R"({"tools": 1, "messages": [{"role": "user", "content": "x"}]})"),
              HasSubstr("\"tools\" is not a list"));
  EXPECT_THAT(parsed(R"({"messages": [{"role": "assistant"}]})"),
              HasSubstr("no field \"content\""));
}

}  // namespace
}  // namespace lockstep::data
