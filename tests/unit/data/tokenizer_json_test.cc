#include "base/hash.h"
#include "base/text.h"
#include "data/tokenizer/bpe_tokenizer.h"
#include "data/tokenizer/open_tokenizer.h"
#include "tests/unit/data/data_test_support.h"
#include "tests/unit/data/tokenizer_definitions.h"

namespace lockstep::data {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using Ids = std::vector<uint32_t>;

std::unique_ptr<Tokenizer> tokenizer_of(const json& definition) {
  auto parsed = parse_tokenizer_json(definition.dump(), "");
  EXPECT_TRUE(parsed.ok()) << message_of(parsed);
  return parsed.ok() ? std::move(parsed).value() : nullptr;
}

TEST(TokenizerJson, MergesByRankAndDecodesBack) {
  const auto tokenizer = tokenizer_of(small_definition());
  EXPECT_EQ(tokenizer->vocab_size(), 261);
  EXPECT_EQ(tokenizer->end_of_document(), 260u);
  EXPECT_EQ(ids_of(*tokenizer, "hello world"), (Ids{258, 'o', 259, 'o', 'r', 'l', 'd'}));
  EXPECT_EQ(ids_of(*tokenizer, "hell<|endoftext|>he"), (Ids{258, 260, 256}));
  EXPECT_EQ(ids_of(*tokenizer, "<|endoftext|>", SpecialNames::kAreText).size(), 13u);
  const Ids ids = {258, 'o', 260, 259};
  EXPECT_EQ(tokenizer->decode(ids).value(), "hello w");
  EXPECT_EQ(tokenizer->decode(ids, true).value(), "hello<|endoftext|> w");
  EXPECT_THAT(message_of(tokenizer->decode(Ids{261})), HasSubstr("261"));
}

TEST(TokenizerJson, BracketsWithoutEndAreRefused) {
  const std::string nested = std::string(100'000, '[') + std::string(100'000, ']');
  for (const char* key : {"pre_tokenizer", "model", "normalizer", "post_processor"}) {
    const auto parsed = parse_tokenizer_json(text("{\"", key, "\":", nested, "}"), "");
    EXPECT_THAT(message_of(parsed), HasSubstr("nested more than 64 levels deep")) << key;
  }
}

TEST(TokenizerJson, BytesThatAreNoUtf8ComeBack) {
  const auto tokenizer = tokenizer_of(small_definition());
  std::string all;
  for (uint64_t i = 0; i < 20000; ++i) all += static_cast<char>(mix64(i) % 256);
  EXPECT_EQ(tokenizer->decode(ids_of(*tokenizer, all)).value(), all);
}

TEST(TokenizerJson, BothSpellingsOfMergesAreTheSameTokenizer) {
  json definition = small_definition();
  const std::string hash = tokenizer_of(definition)->hash();
  definition["model"]["merges"] =
      json::array({{"h", "e"}, {"l", "l"}, {"he", "ll"}, {"\u0120", "w"}});
  EXPECT_EQ(tokenizer_of(definition)->hash(), hash);
  definition["model"]["merges"].erase(3);
  EXPECT_NE(tokenizer_of(definition)->hash(), hash);
}

TEST(TokenizerJson, TemplateAndConfigNameTheEnds) {
  json definition = small_definition();
  definition["added_tokens"].push_back({{"id", 261}, {"content", "<s>"}, {"special", true}});
  definition["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single", {{{"SpecialToken", {{"id", "<s>"}}}}, {{"Sequence", {{"id", "A"}}}}}},
      {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {261}}, {"tokens", {"<s>"}}}}}}};
  const auto tokenizer = tokenizer_of(definition);
  EXPECT_THAT(tokenizer->begin_of_document(), testing::ElementsAre(261));
  EXPECT_EQ(tokenizer->end_of_document(), 260u);
  const auto other = parse_tokenizer_json(definition.dump(), R"({"eos_token": "<s>"})");
  EXPECT_EQ(other.value()->end_of_document(), 261u);
  EXPECT_THAT(message_of(parse_tokenizer_json(definition.dump(), R"({"eos_token": "</s>"})")),
              HasSubstr("eos_token \"</s>\""));
}

TEST(TokenizerJson, WhatIsUnknownIsNamed) {
  const auto with = [](const char* pointer, json value) {
    json definition = small_definition();
    definition[json::json_pointer(pointer)] = std::move(value);
    return error_of(definition);
  };
  EXPECT_THAT(with("/normalizer", {{"type", "Lowercase"}}), HasSubstr("normalizer Lowercase"));
  EXPECT_THAT(with("/pre_tokenizer", {{"type", "Metaspace"}}),
              HasSubstr("pre_tokenizer Metaspace"));
  EXPECT_THAT(with("/pre_tokenizer", nullptr), HasSubstr("without ByteLevel"));
  EXPECT_THAT(with("/post_processor", {{"type", "RobertaProcessing"}}),
              HasSubstr("post_processor RobertaProcessing"));
  EXPECT_THAT(with("/decoder", {{"type", "Metaspace"}}), HasSubstr("decoder Metaspace"));
  EXPECT_THAT(with("/model/type", "Unigram"), HasSubstr("Unigram"));
  EXPECT_THAT(with("/model/dropout", 0.1), HasSubstr("dropout"));
  EXPECT_THAT(with("/model/byte_fallback", true), HasSubstr("ByteLevel"));
  EXPECT_THAT(with("/model/continuing_subword_prefix", "##"), HasSubstr("subword_prefix"));
  EXPECT_THAT(with("/model/merges/0", "h x y"), HasSubstr("does not have two tokens"));
  EXPECT_THAT(with("/model/merges/0", "h q"), HasSubstr("\"hq\", which is not in"));
  EXPECT_THAT(with("/model/vocab/he", -1), HasSubstr("id -1"));
  EXPECT_THAT(with("/model/vocab/he", 4000000000), HasSubstr("4000000000"));
  EXPECT_THAT(with("/added_tokens/0/content", "<|other|>"), HasSubstr("eos_token"));
  json lacking = small_definition();
  lacking["model"]["vocab"].erase("q");
  EXPECT_THAT(error_of(lacking), HasSubstr("no token for byte 113"));
}

// Mutations of the text and of the structure: an error or a tokenizer, never a crash.
TEST(TokenizerJson, DamageNeverCrashes) {
  const std::string whole = small_definition().dump();
  int read = 0;
  for (uint64_t round = 0; round < 3000; ++round) {
    std::string damaged = whole;
    const uint64_t changes = 1 + mix64(round) % 3;
    for (uint64_t k = 0; k < changes; ++k) {
      const uint64_t dice = mix64(round * 16 + k + 1);
      const size_t at = dice % damaged.size();
      if (dice >> 60 < 4)
        damaged.resize(at + 1);
      else if (dice >> 60 < 8)
        damaged.erase(at, 1 + (dice >> 32) % 40);
      else if (dice >> 60 < 12)
        damaged[at] = static_cast<char>(dice >> 40);
      else
        damaged.insert(at, damaged.substr((dice >> 32) % damaged.size(), 30));
      if (damaged.empty()) damaged = "{";
    }
    const auto parsed = parse_tokenizer_json(damaged, "");
    if (!parsed.ok()) {
      ASSERT_FALSE(parsed.error().message.empty());
      continue;
    }
    ++read;
    ids_of(*parsed.value(), "hello <|endoftext|> w\xc3\xa9\xff");
  }
  EXPECT_GT(read, 5);
}

TEST(TokenizerJson, ValuesOfOtherTypesNeverCrash) {
  const json whole = small_definition();
  const json flat = whole.flatten();
  const std::vector<json> others = {
      nullptr, true, -1, 1e300, "x", json::array({1}), json::object({{"type", "Sequence"}})};
  uint64_t dice = 0;
  int read = 0, refused = 0;
  for (const auto& [pointer, value] : flat.items()) {
    if (pointer.starts_with("/model/vocab") && mix64(++dice) % 8 != 0) continue;
    for (json::json_pointer at(pointer); !at.empty(); at.pop_back())
      for (const json& other : others) {
        json damaged = whole;
        damaged[at] = other;
        const auto parsed = parse_tokenizer_json(damaged.dump(), "");
        ++(parsed.ok() ? read : refused);
        if (!parsed.ok()) {
          EXPECT_FALSE(parsed.error().message.empty()) << at << " = " << other;
          continue;
        }
        for (const uint32_t id : ids_of(*parsed.value(), "hello w"))
          EXPECT_LT(id, parsed.value()->vocab_size()) << at << " = " << other;
      }
  }
  EXPECT_GT(read, 10);
  EXPECT_GT(refused, 100);
}

TEST(TokenizerJson, ComposesOnlyWhatNeedsIt) {
  std::string composed;
  EXPECT_FALSE(compose("plain \xc3\xa9", composed));
  EXPECT_TRUE(compose("e\xcc\x81", composed));
  EXPECT_EQ(composed, "\xc3\xa9");
  EXPECT_FALSE(compose("e\xcc\x81\xff", composed));  // not UTF-8: left alone
}

TEST(OpenTokenizer, TellsFilesByTheirContents) {
  const test_support::TempDir dir;
  FileSystem& disk = posix_file_system();
  write_text(dir / "a/anything.bin", small_definition().dump());
  const auto opened = open_tokenizer(disk, (dir / "a/anything.bin").string());
  ASSERT_TRUE(opened.ok()) << message_of(opened);
  write_text(dir / "b" / opened.value().files[0].first, opened.value().files[0].second);
  const auto folder = open_tokenizer(disk, (dir / "b").string());
  ASSERT_TRUE(folder.ok()) << message_of(folder);
  EXPECT_EQ(folder.value().tokenizer->hash(), opened.value().tokenizer->hash());

  const auto error_for = [&](const char* name, std::string_view contents) {
    write_text(dir / name, contents);
    return message_of(open_tokenizer(disk, (dir / name).string()));
  };
  EXPECT_THAT(error_for("c/x", ""), HasSubstr("c/x: the file is empty"));
  EXPECT_THAT(error_for("c/x", "{\"model\": "), HasSubstr("cannot be parsed"));
  EXPECT_THAT(error_for("c/x", "{\"a\": \"b\"}"), HasSubstr("not a tokenizer.json"));
  EXPECT_THAT(error_for("c/x", "A line of text"), HasSubstr("it is not a tokenizer.json"));
  EXPECT_THAT(error_for("c/x", "\x0a\x05garbage"), HasSubstr("SentencePiece"));
  EXPECT_THAT(error_for("c/x", "{\"a\": 1, \"model\": 2}"), HasSubstr("merges.txt"));
  EXPECT_THAT(message_of(open_tokenizer(disk, (dir / "c").string())), HasSubstr("this folder"));
  EXPECT_THAT(message_of(open_tokenizer(disk, "nowhere")), HasSubstr("no such file"));
}

}  // namespace
}  // namespace lockstep::data
