#include <nlohmann/json.hpp>

#include "base/text.h"
#include "tests/unit/data/data_test_support.h"
#include "tests/unit/data/tokenizer_definitions.h"

namespace lockstep::data {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using Ids = std::vector<uint32_t>;

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t bits = 0;
    for (size_t k = 0; k < 3; ++k)
      bits = bits << 8 | (i + k < bytes.size() ? static_cast<uint8_t>(bytes[i + k]) : 0u);
    for (size_t k = 0; k < 4; ++k)
      out += i + k > bytes.size() ? '=' : kDigits[bits >> (18 - 6 * k) & 63];
  }
  return out;
}

// 256 bytes, "ab", "abc", and "\x01\x01" + a number for the rest.
std::vector<std::string> ranks(size_t count) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  tokens.insert(tokens.end(), {"ab", "abc"});
  while (tokens.size() < count) tokens.push_back("\x01\x01" + std::to_string(tokens.size()));
  return tokens;
}

std::string rank_lines(size_t count) {
  std::string lines;
  size_t rank = 0;
  for (const std::string& token : ranks(count)) lines += text(base64(token), " ", rank++, "\n");
  return lines;
}

json tekken(size_t count) {
  json vocab = json::array();
  size_t rank = 0;
  for (const std::string& token : ranks(count))
    vocab.push_back({{"rank", rank++}, {"token_bytes", base64(token)}, {"token_str", nullptr}});
  return {{"config",
           {{"pattern", "[a-z]+|[^a-z]+"},
            {"default_vocab_size", 300},
            {"default_num_special_tokens", 10}}},
          {"vocab", vocab}};
}

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
