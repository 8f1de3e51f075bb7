#include "data/prepare/bpe_trainer.h"

#include "data/tokenizer/open_tokenizer.h"
#include "tests/unit/data/data_test_support.h"
#include "tests/unit/data/tokenizer_definitions.h"

namespace lockstep::data {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

std::string trained(const std::vector<std::string>& texts, int64_t vocab_size) {
  BpeTrainer trainer({"<|endoftext|>"});
  for (const std::string& each : texts) EXPECT_TRUE(trainer.add(each).ok());
  return trainer.tokenizer_json(vocab_size);
}

std::vector<std::string> merges_of(const std::string& definition) {
  return json::parse(definition)["model"]["merges"].get<std::vector<std::string>>();
}

TEST(BpeTrainer, TheMostFrequentPairComesFirstAndTiesInTheOrderOfIds) {
  // " low" 5 times, " lower" 2, " newest" 6, " widest" 3: the example of Sennrich et al.
  std::string words;
  for (const auto& [word, count] :
       {std::pair{" low", 5}, {" lower", 2}, {" newest", 6}, {" widest", 3}})
    for (int i = 0; i < count; ++i) words += word;
  EXPECT_THAT(merges_of(trained({words}, 257 + 8)),
              ElementsAre("e s", "es t", "l o", "Ġ lo", "Ġlo w", "e w", "n ew", "Ġ new"));
}

TEST(BpeTrainer, RunsOfOneLetterMergeLeftmostFirst) {
  EXPECT_THAT(merges_of(trained({"aaaaa aaaaa"}, 1000)),
              ElementsAre("a a", "aa a", "aa aaa", "Ġ aaaaa"));
}

TEST(BpeTrainer, TheFileIsReadAndEncodesWhatItLearnt) {
  const std::string text = some_text(3, 500);
  const std::string definition = trained({text}, 600);
  const auto tokenizer = parse_tokenizer_json(definition, "");
  ASSERT_TRUE(tokenizer.ok()) << message_of(tokenizer);
  EXPECT_EQ(tokenizer.value()->vocab_size(), 600);
  EXPECT_EQ(tokenizer.value()->end_of_document(), 0u);
  const auto ids = ids_of(*tokenizer.value(), text);
  EXPECT_LT(ids.size(), text.size() * 2 / 3);
  EXPECT_EQ(tokenizer.value()->decode(ids).value(), text);
  const std::string other = "Привет, 世界! \xff\xfe <|endoftext|>\n";
  EXPECT_EQ(tokenizer.value()->decode(ids_of(*tokenizer.value(), other), true).value(), other);
}

TEST(BpeTrainer, TheOrderOfTextsAndTheCallsDoNotMatter) {
  const std::string a = some_text(1, 100), b = some_text(2, 100);
  EXPECT_EQ(trained({a, b}, 500), trained({b, a}, 500));
  EXPECT_NE(trained({a}, 500), trained({b}, 500));
}

// This never changes: ids on disk follow from it.
TEST(BpeTrainer, Golden) {
  EXPECT_EQ(hex64(xxh3_64(trained({some_text(9, 300)}, 700))), "a30985f276f8685a");
}

class TrainTokenizerTest : public testing::Test {
 protected:
  Result<std::string> train(const PrepareOptions& options, int64_t vocab_size) {
    return train_tokenizer(posix_file_system(), options, vocab_size);
  }
  test_support::TempDir dir_;
};

TEST_F(TrainTokenizerTest, LearnsFromTextThatIsNotHeldOut) {
  write_text(dir_ / "in/a.txt", some_text(1, 2000));
  write_text(dir_ / "in/b.txt", some_text(2, 1000));
  PrepareOptions options = options_for(dir_ / "in", dir_ / "out");
  options.val_millionths = 0;
  const auto all = train(options, 400);
  ASSERT_TRUE(all.ok()) << message_of(all);
  EXPECT_EQ(json::parse(all.value())["model"]["vocab"].size(), 400u);
  EXPECT_EQ(train(options, 400).value(), all.value());
  options.val_millionths = 500'000;
  EXPECT_NE(train(options, 400).value(), all.value());
}

TEST_F(TrainTokenizerTest, ChatsGiveTheirTemplatesTokens) {
  write_text(dir_ / "a.jsonl", R"({"messages": [{"role": "user", "content": "aa aa aa"},)"
                               R"( {"role": "assistant", "content": "bb bb bb"}]})"
                               "\n");
  PrepareOptions options = options_for(dir_ / "a.jsonl", dir_ / "out");
  options.val_millionths = 0;
  options.records = RecordFormat{.chat_template = "chatml"};
  const auto definition = train(options, 300);
  ASSERT_TRUE(definition.ok()) << message_of(definition);
  const auto tokenizer = parse_tokenizer_json(definition.value(), "");
  ASSERT_TRUE(tokenizer.ok()) << message_of(tokenizer);
  EXPECT_EQ(tokenizer.value()->special_id("<|im_start|>"), 1u);
  EXPECT_THAT(merges_of(definition.value()), testing::Contains("Ġ bb"));
  EXPECT_TRUE(prepare(posix_file_system(), *tokenizer.value(), options).ok());
}

TEST_F(TrainTokenizerTest, AVocabularyThatCannotBeIsAnError) {
  write_text(dir_ / "a.txt", "text");
  const PrepareOptions options = options_for(dir_ / "a.txt", dir_ / "out");
  EXPECT_THAT(message_of(train(options, 256)), HasSubstr("from 257"));
  EXPECT_THAT(message_of(train(options, kMaxTrainedVocab + 1)), HasSubstr("are possible"));
  EXPECT_TRUE(train(options, 257).ok());
}

}  // namespace
}  // namespace lockstep::data
