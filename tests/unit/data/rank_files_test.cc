
#include "base/json.h"
#include "base/text.h"
#include "tests/unit/data/data_test_support.h"
#include "tests/unit/data/rank_definitions.h"
#include "tests/unit/data/tokenizer_definitions.h"

namespace lockstep::data {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using Ids = std::vector<uint32_t>;

TEST(RankFiles, Base64) {
  std::string bytes;
  for (const std::string_view word : {"", "a", "ab", "abc", "\xff\xfe"}) {
    EXPECT_TRUE(decode_base64(base64(word), bytes));
    EXPECT_EQ(bytes, word);
  }
  EXPECT_FALSE(decode_base64("abc", bytes));
  EXPECT_FALSE(decode_base64("ab!=", bytes));
}

TEST(RankFiles, TheFamilyFollowsFromTheNumberOfRanks) {
  const auto gpt2 = parse_tiktoken(rank_lines(50256));
  ASSERT_TRUE(gpt2.ok()) << message_of(gpt2);
  EXPECT_EQ(gpt2.value()->name(), "tiktoken r50k_base");
  EXPECT_EQ(gpt2.value()->vocab_size(), 50257);
  EXPECT_EQ(ids_of(*gpt2.value(), "abcab<|endoftext|>"), (Ids{257, 256, 50256}));
  const auto llama = parse_tiktoken(rank_lines(128000));
  ASSERT_TRUE(llama.ok()) << message_of(llama);
  EXPECT_EQ(llama.value()->vocab_size(), 128256);
  EXPECT_EQ(llama.value()->special_id("<|eot_id|>"), 128009u);
  EXPECT_EQ(llama.value()->special_id("<|reserved_special_token_0|>"), 128002u);
  EXPECT_EQ(llama.value()->special_id("<|reserved_special_token_2|>"), 128012u);
  EXPECT_THAT(llama.value()->begin_of_document(), testing::ElementsAre(128000));
}

TEST(RankFiles, WhatIsWrongIsNamed) {
  EXPECT_THAT(message_of(parse_tiktoken(rank_lines(1000))), HasSubstr("1000 ranks"));
  EXPECT_THAT(message_of(parse_tiktoken("YQ== x\n")), HasSubstr("line 1"));
  EXPECT_THAT(message_of(parse_tiktoken("Y* 1\n")), HasSubstr("base64"));
  EXPECT_THAT(message_of(parse_tiktoken("YQ== 1\nYg== 1\n")), HasSubstr("twice"));
  EXPECT_THAT(message_of(parse_tiktoken("YQ== 999999999\n")), HasSubstr("out of range"));
  std::string longest;
  while (longest.size() < 684) longest += "YWFh";  // 513 bytes
  EXPECT_THAT(message_of(parse_tiktoken(longest + " 1\n")), HasSubstr("has 513 bytes"));
}

TEST(Tekken, SpecialIdsComeFirstAndNamesAreText) {
  const auto parsed = parse_tekken(tekken(400).dump());
  ASSERT_TRUE(parsed.ok()) << message_of(parsed);
  const Tokenizer& tokenizer = *parsed.value();
  EXPECT_EQ(tokenizer.vocab_size(), 300);  // 290 ranks of the 400
  EXPECT_EQ(ids_of(tokenizer, "abcab"), (Ids{267, 266}));
  EXPECT_EQ(tokenizer.special_id("[INST]"), 3u);
  EXPECT_EQ(tokenizer.end_of_document(), 2u);
  EXPECT_EQ(ids_of(tokenizer, "<s>").size(), 3u);
  EXPECT_EQ(tokenizer.decode(Ids{1, 267, 2}, true).value(), "<s>abc</s>");
  EXPECT_EQ(tokenizer.decode(Ids{1, 267, 2}).value(), "abc");
}

TEST(Tekken, WhatIsWrongIsNamed) {
  json broken = tekken(400);
  broken["config"]["pattern"] = "[";
  EXPECT_THAT(message_of(parse_tekken(broken.dump())), HasSubstr("does not compile"));
  broken = tekken(400);
  broken["config"]["default_num_special_tokens"] = 300;
  EXPECT_THAT(message_of(parse_tekken(broken.dump())), HasSubstr("default_vocab_size 300"));
  broken = tekken(400);
  broken["vocab"][0]["token_bytes"] = 7;
  EXPECT_THAT(message_of(parse_tekken(broken.dump())), HasSubstr("tekken.json"));
  EXPECT_THAT(message_of(parse_tekken("[]")), HasSubstr("tekken.json"));
}

}  // namespace
}  // namespace lockstep::data
