#include "data/tokenizer/metaspace_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "base/text.h"
#include "tests/unit/data/tokenizer_definitions.h"

namespace lockstep::data {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Ids = std::vector<uint32_t>;

// <unk>, <s>, </s>, the 256 bytes from 3 on; then _ (U+2581) 259, h 260, e 261, l 262, o 263, he
// 264, ll 265, _he 266, llo 267, _hello 268.
json definition() {
  json vocab = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}};
  constexpr const char* kDigits = "0123456789ABCDEF";
  for (int byte = 0; byte < 256; ++byte)
    vocab[text("<0x", kDigits[byte / 16], kDigits[byte % 16], ">")] = 3 + byte;
  int id = 259;
  for (const char* token :
       {"\u2581", "h", "e", "l", "o", "he", "ll", "\u2581he", "llo", "\u2581hello"})
    vocab[token] = id++;
  json added = json::array();
  for (const char* name : {"<unk>", "<s>", "</s>"})
    added.push_back(
        {{"id", vocab[name]}, {"content", name}, {"special", true}, {"normalized", false}});
  return {{"added_tokens", added},
          {"normalizer", nullptr},
          {"pre_tokenizer", nullptr},
          {"post_processor", nullptr},
          {"decoder", nullptr},
          {"model",
           {{"type", "BPE"},
            {"vocab", vocab},
            {"merges", {"h e", "l l", "\u2581 he", "ll o", "\u2581he llo"}},
            {"byte_fallback", true},
            {"fuse_unk", true},
            {"unk_token", "<unk>"}}}};
}

const json kReplace = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}};

json llama() {
  json made = definition();
  made["normalizer"] = {
      {"type", "Sequence"},
      {"normalizers", json::array({{{"type", "Prepend"}, {"prepend", "\u2581"}}, kReplace})}};
  made["added_tokens"].push_back(
      {{"id", 269}, {"content", "lo"}, {"special", false}, {"normalized", true}});
  return made;
}
json metaspace(const char* scheme, bool split) {
  json made = definition();
  made["pre_tokenizer"] = {{"type", "Metaspace"},
                           {"replacement", "\u2581"},
                           {"prepend_scheme", scheme},
                           {"split", split}};
  return made;
}
json gemma() {
  json made = definition();
  made["normalizer"] = kReplace;
  made["pre_tokenizer"] = {{"type", "Split"},
                           {"pattern", {{"String", " "}}},
                           {"behavior", "MergedWithPrevious"},
                           {"invert", false}};
  return made;
}

std::unique_ptr<Tokenizer> made(const json& from) {
  auto parsed = parse_tokenizer_json(from.dump(), "");
  EXPECT_TRUE(parsed.ok()) << parsed.error().message;
  return parsed.ok() ? std::move(parsed).value() : nullptr;
}

// `tokenizers` 0.23 gives these ids.
TEST(MetaspaceTokenizer, LlamasPrependsToEachPartBetweenSpecialTokens) {
  const auto t = made(llama());
  EXPECT_EQ(t->end_of_document(), 2u);
  EXPECT_EQ(t->vocab_size(), 270);
  EXPECT_EQ(ids_of(*t, "hello hello"), (Ids{268, 268}));
  EXPECT_EQ(ids_of(*t, "hello</s>hello"), (Ids{268, 2, 268}));
  EXPECT_EQ(ids_of(*t, " hello"), (Ids{259, 268}));
  EXPECT_EQ(ids_of(*t, "\u00e9<s>"), (Ids{259, 198, 172, 1}));
  EXPECT_THAT(ids_of(*t, ""), IsEmpty());
  EXPECT_EQ(ids_of(*t, "lo hello lo"), (Ids{269, 268, 269}));
  EXPECT_EQ(ids_of(*t, "</s> hello"), (Ids{2, 259, 268}));
  EXPECT_EQ(ids_of(*t, "  \n"), (Ids{259, 259, 259, 13}));
  // "</s>" as text: four bytes.
  EXPECT_EQ(ids_of(*t, "hello</s>", SpecialNames::kAreText), (Ids{268, 63, 50, 118, 65}));
}

TEST(MetaspaceTokenizer, NothingIsPutBeforeATextThatGoesOn) {
  const auto tokenizer = parse_tokenizer_json(llama().dump(), "");
  ASSERT_TRUE(tokenizer.ok());
  Ids whole, parts;
  ASSERT_TRUE(tokenizer.value()->encode("hello\nhello hello", whole).ok());
  ASSERT_TRUE(encode_after(*tokenizer.value(), "", "hello\n", parts).ok());
  ASSERT_TRUE(encode_after(*tokenizer.value(), "hello\n", "hello", parts).ok());
  ASSERT_TRUE(encode_after(*tokenizer.value(), "hello", " hello", parts).ok());
  EXPECT_EQ(parts, whole);
}

TEST(MetaspaceTokenizer, MistralsPrependsAtTheBeginningAlone) {
  const auto t = made(metaspace("first", false));
  EXPECT_EQ(ids_of(*t, "hello hello"), (Ids{268, 268}));
  EXPECT_EQ(ids_of(*t, "hello</s>hello"), (Ids{268, 2, 264, 267}));
  EXPECT_EQ(ids_of(*t, " hello"), (Ids{268}));
  EXPECT_EQ(ids_of(*t, "</s> hello"), (Ids{2, 268}));
  EXPECT_EQ(ids_of(*t, "  \n"), (Ids{259, 259, 13}));
}

TEST(MetaspaceTokenizer, OtherSchemesAndGemmas) {
  const auto always = made(metaspace("always", true)), never = made(metaspace("never", false));
  EXPECT_EQ(ids_of(*always, "hello</s>hello"), (Ids{268, 2, 268}));
  EXPECT_EQ(ids_of(*always, "lo hello lo"), (Ids{259, 262, 263, 268, 259, 262, 263}));
  EXPECT_EQ(ids_of(*never, "hello hello"), (Ids{264, 267, 268}));
  const auto g = made(gemma());
  EXPECT_EQ(ids_of(*g, "hello</s>hello"), (Ids{264, 267, 2, 264, 267}));
  EXPECT_EQ(ids_of(*g, "\u00e9<s>"), (Ids{198, 172, 1}));
  EXPECT_NE(always->hash(), never->hash());
  EXPECT_NE(g->hash(), never->hash());
}

TEST(MetaspaceTokenizer, DecodesBytesAndSpaces) {
  const auto t = made(llama());
  for (const char* words : {"hello hello", "  two", "\u00e9t\u00e9", "a\nb", "lo"})
    EXPECT_EQ(t->decode(ids_of(*t, words)).value(), words);
  EXPECT_EQ(t->decode(Ids{268, 2}, true).value(), "hello</s>");
  EXPECT_EQ(t->decode(Ids{268, 2}).value(), "hello");
  EXPECT_EQ(t->decode(Ids{270}).ok(), false);
  // Bytes that are no UTF-8 stay as they are.
  EXPECT_EQ(t->decode(ids_of(*t, "\xff\xe2\x96")).value(), "\xff\xe2\x96");
}

TEST(MetaspaceTokenizer, WithoutBytesACharacterIsUnknown) {
  json from = llama();
  from["model"]["byte_fallback"] = false;
  from["pre_tokenizer"] = metaspace("never", false)["pre_tokenizer"];
  EXPECT_THAT(ids_of(*made(from), "xyz"), ElementsAre(259, 0));
  from["model"]["fuse_unk"] = false;
  EXPECT_THAT(ids_of(*made(from), "xyz"), ElementsAre(259, 0, 0, 0));
}

TEST(MetaspaceTokenizer, WhatIsNotKnownIsNamed) {
  json from = llama();
  from["normalizer"] = {{"type", "BertNormalizer"}};
  EXPECT_THAT(error_of(from), HasSubstr("normalizer BertNormalizer"));
  EXPECT_THAT(error_of(definition()), HasSubstr("byte_fallback without"));
  from = llama();
  from["pre_tokenizer"] = {{"type", "Whitespace"}};
  EXPECT_THAT(error_of(from), HasSubstr("Whitespace"));
  from = llama();
  from["pre_tokenizer"] = metaspace("always", false)["pre_tokenizer"];
  EXPECT_THAT(error_of(from), HasSubstr("after the normalizer Prepend"));
  from = llama();
  from["model"]["unk_token"] = "<none>";
  EXPECT_THAT(error_of(from), HasSubstr("unk_token \"<none>\""));
}

}  // namespace
}  // namespace lockstep::data
