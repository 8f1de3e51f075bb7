#include "data/tokenizer/unigram_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/json.h"
#include "data/tokenizer/char_map.h"
#include "data/tokenizer/definitions.h"
#include "data/tokenizer/normalizer.h"

namespace lockstep::data {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

json vocabulary_with_scores() {
  return json::parse(R"([["<unk>", 0.0], ["</s>", 0.0], ["▁", -2.0], ["a", -3.0], ["b", -3.0],
                         ["ab", -4.0], ["▁ab", -5.5], ["ba", -4.0]])");
}

json unigram_definition(json normalizer, json pre_tokenizer) {
  const json model = {{"type", "Unigram"},
                      {"unk_id", 0},
                      {"byte_fallback", false},
                      {"vocab", vocabulary_with_scores()}};
  return {{"added_tokens", json::array()},
          {"normalizer", std::move(normalizer)},
          {"pre_tokenizer", std::move(pre_tokenizer)},
          {"post_processor", nullptr},
          {"decoder", {{"type", "Metaspace"}, {"replacement", "\u2581"}}},
          {"model", model}};
}

const json kMetaspaceAlways = {
    {"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", "always"}};

std::vector<uint32_t> ids_of(const json& definition, std::string_view words) {
  const auto tokenizer = parse_tokenizer_json(definition.dump(), "");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  std::vector<uint32_t> ids;
  if (tokenizer.ok()) {
    EXPECT_TRUE(tokenizer.value()->encode(words, ids).ok());
  }
  return ids;
}

// Expected ids are those of `tokenizers`; unigram_definitions.py compares whole files.
TEST(UnigramModel, OfEqualSumsTheFirstFoundCounts) {
  const json plain = unigram_definition(nullptr, nullptr);
  EXPECT_THAT(ids_of(plain, "aba"), ElementsAre(3, 7));
  EXPECT_THAT(ids_of(plain, "ab"), ElementsAre(5));
}

TEST(UnigramModel, UnknownNeighboursAreOneToken) {
  const json plain = unigram_definition(nullptr, nullptr);
  EXPECT_THAT(ids_of(plain, "xéb x"), ElementsAre(0, 4, 0));
}

TEST(UnigramModel, WordsAreCutAtWhiteSpaceFirst) {
  const json t5 = unigram_definition(
      {{"type", "Lowercase"}},
      {{"type", "Sequence"},
       {"pretokenizers", json::array({{{"type", "WhitespaceSplit"}}, kMetaspaceAlways})}});
  EXPECT_THAT(ids_of(t5, " AB \n\tba\u3000"), ElementsAre(6, 2, 7));
}

TEST(UnigramModel, WhatIsNotKnownIsNamed) {
  const auto message = [](const json& definition) {
    const auto tokenizer = parse_tokenizer_json(definition.dump(), "");
    return tokenizer.ok() ? std::string("none") : tokenizer.error().message;
  };
  EXPECT_THAT(message(unigram_definition({{"type", "BertNormalizer"}}, nullptr)),
              HasSubstr("normalizer BertNormalizer"));
  EXPECT_THAT(message(unigram_definition(nullptr, {{"type", "Punctuation"}})),
              HasSubstr("Punctuation"));
  json headless = unigram_definition(nullptr, nullptr);
  headless["model"]["unk_id"] = nullptr;
  EXPECT_THAT(message(headless), HasSubstr("without unk_id"));
  headless["model"]["unk_id"] = 99;
  EXPECT_THAT(message(headless), HasSubstr("unk_id 99"));
}

// "A" -> "a" and nothing else.
std::string blob_of_small_map() {
  std::vector<uint32_t> units(0x43);
  units[0] = 1u << 10;                      // its children are at 1 ^ byte
  units[0x40] = 2u << 10 | 1u << 8 | 0x41;  // "A" ends here; its value is at 0x40 ^ 2
  units[0x42] = 0x80000000;                 // replacements from 0 on
  const auto bytes = static_cast<uint32_t>(units.size() * sizeof(uint32_t));
  std::string blob(sizeof(bytes) + bytes, '\0');
  std::memcpy(blob.data(), &bytes, sizeof(bytes));
  std::memcpy(blob.data() + sizeof(bytes), units.data(), bytes);
  return blob + std::string("a\0", 2);
}

TEST(CharMap, AShortGraphemeBecomesWhatItsBeginningSays) {
  const auto map = CharMap::create(blob_of_small_map());
  ASSERT_TRUE(map.ok());
  EXPECT_EQ(map.value().apply("xAyA"), "xaya");
  EXPECT_EQ(map.value().apply("A\u0301b"), "ab");  // 3 bytes: the accent is lost
  EXPECT_EQ(map.value().apply("A\u0301\u0301\u0301b"), "a\u0301\u0301\u0301b");  // 7 bytes
  EXPECT_EQ(map.value().apply("\xff"
                              "A"),
            "\xff"
            "a");
}

TEST(CharMap, ADamagedMapIsRefusedOrFindsNothing) {
  EXPECT_FALSE(CharMap::create("abc").ok());
  EXPECT_FALSE(CharMap::create(std::string("\x08\0\0\0abcd", 8)).ok());
  std::string blob = blob_of_small_map();
  blob.resize(blob.size() - 2);
  const auto map = CharMap::create(blob);
  ASSERT_TRUE(map.ok());
  EXPECT_EQ(map.value().apply("A"), "A");
}

std::string normalized(const json& definition, std::string words) {
  const auto normalizer = make_normalizer(definition);
  EXPECT_TRUE(normalizer.ok()) << normalizer.error().message;
  if (normalizer.ok()) {
    EXPECT_TRUE(normalizer.value()->apply(words).ok());
  }
  return words;
}

TEST(Normalizer, StagesDoWhatTokenizersDoes) {
  EXPECT_EQ(normalized({{"type", "Nmt"}}, "a\x01\tb\u200b\u2581"), "a b  ");
  EXPECT_EQ(normalized({{"type", "NFKC"}}, "ﬁ①\U0001e030"), "fi1\U0001e030");
  EXPECT_EQ(normalized({{"type", "NFKD"}}, "é"), "e\u0301");
  EXPECT_EQ(normalized({{"type", "StripAccents"}}, "e\u0301x"), "ex");
  EXPECT_EQ(normalized({{"type", "Lowercase"}}, "ÀİZ"), "ài\u0307z");
  EXPECT_EQ(normalized({{"type", "Strip"}, {"strip_left", false}, {"strip_right", true}}, " a \n"),
            " a");
  EXPECT_EQ(normalized({{"type", "Replace"}, {"pattern", {{"Regex", " {2,}"}}}, {"content", "_"}},
                       "a   b c"),
            "a_b c");
  EXPECT_EQ(normalized({{"type", "Prepend"}, {"prepend", "_"}}, ""), "");
}

}  // namespace
}  // namespace lockstep::data
