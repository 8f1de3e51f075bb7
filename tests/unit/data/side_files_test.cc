#include "data/tokenizer/side_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/tokenizer/definitions.h"
#include "data/tokenizer/open_tokenizer.h"
#include "tests/unit/data/memory_files.h"
#include "tests/unit/data/sentencepiece_model.h"
#include "tests/unit/data/tokenizer_definitions.h"

namespace lockstep::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Texts = std::vector<std::pair<std::string, std::string>>;

Result<OpenedTokenizer> opened(const Texts& files) {
  MemoryFiles disk;
  for (const auto& [name, contents] : files) disk.put("tok/" + name, contents);
  return open_tokenizer(disk, "tok");
}

// The tokenizer of a folder. A folder with the files that are kept of it gives the same one.
std::unique_ptr<Tokenizer> tokenizer_of(const Texts& files) {
  auto first = opened(files);
  EXPECT_TRUE(first.ok()) << first.error().message;
  if (!first.ok()) return nullptr;
  const auto again = opened(first.value().files);
  EXPECT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(again.value().tokenizer->hash(), first.value().tokenizer->hash());
  return std::move(first.value().tokenizer);
}

std::string refusal(const Texts& files) {
  const auto made = opened(files);
  return made.ok() ? "" : made.error().message;
}

// With another special token, 261.
std::string two_ends() {
  nlohmann::json definition = small_definition();
  definition["added_tokens"].push_back(
      {{"id", 261}, {"content", "[END]"}, {"special", true}, {"normalized", false}});
  return definition.dump();
}

// What transformers 5.23 gives for each.
TEST(SideFiles, TheEndIsThatOfTheSpecialTokensMapThenOfTheConfig) {
  const std::string map = R"({"eos_token": "[END]"})", config = R"({"eos_token": "<|endoftext|>"})";
  const auto end = [](Texts side) {
    side.emplace_back("tokenizer.json", two_ends());
    return tokenizer_of(side)->end_of_document();
  };
  EXPECT_EQ(end({{"special_tokens_map.json", map}}), 261u);
  EXPECT_EQ(end({{"special_tokens_map.json", R"({"eos_token": {"content": "[END]"}})"}}), 261u);
  EXPECT_EQ(end({{"special_tokens_map.json", map}, {"tokenizer_config.json", config}}), 261u);
  EXPECT_EQ(
      end({{"special_tokens_map.json", map}, {"tokenizer_config.json", R"({"eos_token": null})"}}),
      261u);
  EXPECT_EQ(end({{"special_tokens_map.json", map},
                 {"tokenizer_config.json",
                  R"({"eos_token": "<|endoftext|>", "added_tokens_decoder": {}})"}}),
            260u);
  EXPECT_EQ(end({{"tokenizer_config.json", config}}), 260u);
  EXPECT_THAT(refusal({{"tokenizer.json", two_ends()},
                       {"special_tokens_map.json", R"({"eos_token": "[FIN]"})"}}),
              HasSubstr("eos_token \"[FIN]\" of special_tokens_map.json is not in the vocabulary"));
  EXPECT_THAT(refusal({{"tokenizer.json", two_ends()}, {"special_tokens_map.json", "[]"}}),
              HasSubstr("special_tokens_map.json is not a JSON object"));
}

Texts sentencepiece_with(const std::string& config) {
  return {{"tokenizer.model", sentencepiece_model(2)}, {"tokenizer_config.json", config}};
}

TEST(SideFiles, SentencePieceHasNoBeginningWhereTheConfigSaysSo) {
  const auto plain = tokenizer_of({{"tokenizer.model", sentencepiece_model(2)}});
  EXPECT_THAT(plain->begin_of_document(), ElementsAre(1));
  const auto said = tokenizer_of(sentencepiece_with(R"({"add_bos_token": true})"));
  EXPECT_EQ(said->hash(), plain->hash());
  EXPECT_THAT(said->begin_of_document(), ElementsAre(1));
  const auto without = tokenizer_of(
      sentencepiece_with(R"({"tokenizer_class": "LlamaTokenizer", "add_bos_token": false,
                             "add_eos_token": false, "bos_token": "<s>", "eos_token": "</s>"})"));
  EXPECT_THAT(without->begin_of_document(), IsEmpty());
  EXPECT_EQ(without->end_of_document(), 2u);
  EXPECT_NE(without->hash(), plain->hash());
  EXPECT_THAT(refusal(sentencepiece_with(R"({"add_bos_token": "no"})")),
              HasSubstr("add_bos_token must be true or false"));
}

TEST(SideFiles, SentencePieceKnowsAddedTokensByTheirIds) {
  const Texts files{
      {"tokenizer.model", sentencepiece_model(2)},
      {"special_tokens_map.json", R"({"eos_token": "<|im_end|>"})"},
      {"added_tokens.json", R"({"<|im_start|>": 278, "<|im_end|>": 279, "</s>": 2})"}};
  const auto chat = tokenizer_of(files);
  const auto plain = tokenizer_of({files[0]});
  ASSERT_EQ(plain->vocab_size(), 278);
  EXPECT_EQ(chat->vocab_size(), 280);
  EXPECT_EQ(chat->end_of_document(), 279u);
  EXPECT_EQ(chat->special_id("<|im_start|>"), 278u);
  EXPECT_EQ(ids_of(*chat, "hello world"), ids_of(*plain, "hello world"));
  EXPECT_EQ(chat->decode(std::vector<uint32_t>{278, 262, 279}, true).value().find("<|im_start|>"),
            0u);
  // The library cannot cut a text there: an error, not pieces of the name.
  std::vector<uint32_t> ids;
  const auto cut = chat->encode("hello<|im_end|>", ids);
  ASSERT_FALSE(cut.ok());
  EXPECT_THAT(cut.error().message, HasSubstr("\"<|im_end|>\", which is no piece"));
  EXPECT_TRUE(chat->encode("hello<|im_end|>", ids, SpecialNames::kAreText).ok() ||
              !chat->special_id("<|im_end|>"));
  EXPECT_THAT(refusal({files[0], {"special_tokens_map.json", R"({"eos_token": "<|end|>"})"}}),
              HasSubstr("\"<|end|>\" of special_tokens_map.json is neither a piece"));
  EXPECT_THAT(refusal({files[0], {"added_tokens.json", R"({"<x>": 7})"}}),
              HasSubstr("\"<x>\" has the id 7"));
}

std::string vocab() {
  nlohmann::json vocab = small_definition()["model"]["vocab"];
  vocab["<|endoftext|>"] = 260;
  return vocab.dump();
}

constexpr const char* kMerges = "#version: 0.2\nh e\nl l\nhe ll\n\u0120 w\n";

TEST(SideFiles, MergesMayEndTheirLinesAsWindowsDoes) {
  const auto plain = tokenizer_of({{"vocab.json", vocab()}, {"merges.txt", kMerges}});
  std::string windows;
  for (const char* c = kMerges; *c != '\0'; ++c)
    windows += *c == '\n' ? "\r\n" : std::string(1, *c);
  const auto crlf = tokenizer_of({{"vocab.json", vocab()}, {"merges.txt", windows}});
  EXPECT_EQ(crlf->hash(), plain->hash());
  EXPECT_THAT(ids_of(*crlf, "hello w"), ElementsAre(258, 'o', 259));
}

// transformers 5.23 gives the same ids.
TEST(SideFiles, AddedTokensNextToVocabularyAndMergesAreCutOut) {
  Texts files{
      {"vocab.json", vocab()}, {"merges.txt", kMerges}, {"added_tokens.json", R"({"<x>": 261})"}};
  const auto added = tokenizer_of(files);
  EXPECT_THAT(ids_of(*added, "hell<x>hell<|endoftext|>"), ElementsAre(258, 261, 258, 260));
  EXPECT_EQ(added->vocab_size(), 262);
  EXPECT_EQ(added->end_of_document(), 260u);
  files.emplace_back("special_tokens_map.json", R"({"eos_token": "<x>"})");
  EXPECT_EQ(tokenizer_of(files)->end_of_document(), 261u);
  files[2].second = R"({"<x>": 268})";
  EXPECT_THAT(refusal(files), HasSubstr("\"<x>\" has the id 268, and the next free one is 261"));
  const auto begins =
      tokenizer_of({files[0], files[1], {"tokenizer_config.json", R"({"add_bos_token": true,
                                       "bos_token": "<|endoftext|>", "add_prefix_space": true})"}});
  EXPECT_THAT(begins->begin_of_document(), ElementsAre(260));
  EXPECT_THAT(ids_of(*begins, "w"), ElementsAre(259));
}

TEST(SideFiles, TheClassSaysHowVocabularyAndMergesCut) {
  const auto of_class = [](const std::string& name) -> Texts {
    return {{"vocab.json", vocab()},
            {"merges.txt", kMerges},
            {"tokenizer_config.json", R"({"tokenizer_class": ")" + name + R"("})"}};
  };
  const auto gpt2 = tokenizer_of(of_class("GPT2TokenizerFast"));
  const auto qwen2 = tokenizer_of(of_class("Qwen2Tokenizer"));
  EXPECT_NE(gpt2->hash(), qwen2->hash());
  // Qwen2 composes: e and a combining acute accent.
  EXPECT_EQ(ids_of(*qwen2, "e\u0301").size(), 2u);
  EXPECT_EQ(ids_of(*gpt2, "e\u0301").size(), 3u);
  EXPECT_THAT(refusal(of_class("RobertaTokenizer")),
              HasSubstr("tokenizer_class RobertaTokenizer of tokenizer_config.json is not known"));
}

TEST(SideFiles, APointerOfGitLfsIsNamedAsSuch) {
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n";
  for (const char* name : {"tokenizer.json", "tokenizer.model", "vocab.json"})
    EXPECT_THAT(refusal({{name, pointer}}),
                testing::AllOf(HasSubstr(name), HasSubstr("git lfs pull")));
}

}  // namespace
}  // namespace lockstep::data
