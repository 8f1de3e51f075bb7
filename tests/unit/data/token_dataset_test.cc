#include "data/loader/open_dataset.h"

#include <map>
#include <set>
#include <thread>

#include "data/formats/token_shard.h"
#include "data/order/sample_order.h"
#include "tests/support/counting_file_system.h"
#include "tests/unit/data/data_test_support.h"

namespace lockstep::data {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class TokenDatasetTest : public testing::Test {
 protected:
  void SetUp() override {
    contents_ = some_text(11, 2000);
    write_text(dir_ / "in/a.txt", contents_);
    PrepareOptions prepare_options = options_for(dir_ / "in", dir_ / "out");
    prepare_options.val_millionths = 0;
    prepare_options.shard_tokens = 30'011;  // samples straddle shards
    auto report = prepare_bytes(prepare_options);
    ASSERT_TRUE(report.ok()) << message_of(report);
    manifest_ = report->manifest;
    source_.path = dir_ / "out";
    options_.seq_len = 64;
    options_.batch_size = 3;
    options_.slots = 6;
    options_.seed = 42;
    options_.vocab_size = 257;
  }
  std::unique_ptr<TokenDataset> open() {
    auto dataset = open_dataset(posix_file_system(), source_, options_);
    EXPECT_TRUE(dataset.ok()) << message_of(dataset);
    return std::move(dataset).value();
  }
  std::string failure(Code code) {
    const auto dataset = open_dataset(posix_file_system(), source_, options_);
    EXPECT_TRUE(!dataset.ok() && dataset.error().code == code);
    return message_of(dataset);
  }
  std::string file_failure() {
    const auto checked = check_files(posix_file_system(), source_, "train");
    EXPECT_TRUE(!checked.ok() && checked.error().code == Code::kCorrupt);
    return message_of(checked);
  }
  // In place of what SetUp made, one shard.
  void train_on(const std::vector<uint32_t>& tokens) {
    auto writer =
        ShardWriter::create(posix_file_system(), dir_ / "out", "train_00000.tokens", "u16");
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE(writer.value()->append(tokens).ok());
    auto info = writer.value()->seal();
    ASSERT_TRUE(info.ok());
    info->split = "train";
    manifest_.shards = {info.value()};
    const std::string sealed = seal_manifest(manifest_);
    ASSERT_TRUE(publish_file(posix_file_system(), dir_ / "out/manifest.json", sealed).ok());
  }
  test_support::TempDir dir_;
  std::string contents_;
  DatasetManifest manifest_;
  Config::Data source_;
  TokenDataset::Options options_;
};

TEST_F(TokenDatasetTest, RowsAreTheSamplesOfTheOrderAndLabelsAreShiftedByOne) {
  const auto dataset = open();
  const int64_t n = dataset->sample_count();
  EXPECT_EQ(n, static_cast<int64_t>(contents_.size()) / 64);  // one mark more than bytes, minus one
  for (int64_t step : {int64_t{0}, int64_t{1}, n / 18, int64_t{1000000}}) {
    for (int64_t slot = 0; slot < 6; ++slot) {
      auto batch = dataset->batch(step, slot);
      ASSERT_TRUE(batch.ok()) << message_of(batch);
      EXPECT_EQ(batch->step, step);
      EXPECT_EQ(batch->slot, slot);
      EXPECT_EQ(batch->valid_tokens, 3 * 64);
      ASSERT_EQ(batch->tokens.size(), 3u * 64);
      ASSERT_EQ(batch->labels.size(), 3u * 64);
      for (int64_t row = 0; row < 3; ++row) {
        const int64_t index = (step * 6 + slot) * 3 + row;
        const int64_t sample = SampleOrder(n, 42, index / n)(index % n);
        for (int64_t t = 0; t < 64; ++t) {
          const auto at = static_cast<size_t>(sample * 64 + t);
          const auto cell = static_cast<size_t>(row * 64 + t);
          ASSERT_EQ(batch->tokens[cell], static_cast<unsigned char>(contents_[at]));
          const int64_t label =
              at + 1 < contents_.size() ? static_cast<unsigned char>(contents_[at + 1]) : 256;
          ASSERT_EQ(batch->labels[cell], label);
        }
      }
    }
  }
}

TEST_F(TokenDatasetTest, AnEpochVisitsEverySampleOnceEvenAcrossASlot) {
  options_.batch_size = 1;
  options_.slots = 1;
  const auto dataset = open();
  std::map<std::vector<int64_t>, int> visits;
  for (int64_t step = 0; step < 2 * dataset->sample_count(); ++step)
    ++visits[dataset->batch(step, 0)->tokens];
  EXPECT_EQ(static_cast<int64_t>(visits.size()),
            dataset->sample_count());  // the text has no repeats
  for (const auto& [sample, count] : visits) ASSERT_EQ(count, 2);
}

TEST_F(TokenDatasetTest, AnotherBatchGoesOnWhereItsOriginIs) {
  const auto before = open();
  constexpr int64_t kSteps = 7, kDrawn = kSteps * 6 * 3;
  options_.batch_size = 1;
  const auto after = open();
  after->set_origin({kSteps, {kDrawn}});
  for (int64_t i = 0; i < 60; ++i) {
    const int64_t index = kDrawn + i, row = index % 3;
    auto whole = before->batch(index / 18, index / 3 % 6);
    auto single = after->batch(kSteps + i / 6, i % 6);
    ASSERT_TRUE(whole.ok() && single.ok());
    const auto begin = whole->tokens.begin() + row * 64;
    EXPECT_EQ(single->tokens, std::vector<int64_t>(begin, begin + 64)) << index;
  }
  const auto jumps = open();
  after->set_origin({});
  EXPECT_EQ(after->batch(kSteps, 0)->tokens, jumps->batch(kSteps, 0)->tokens);
}

// The whole claim: who computes a slot does not change what the slot holds.
TEST_F(TokenDatasetTest, TheStreamIsTheSameForAnyWorldSize) {
  using Stream = std::map<std::pair<int64_t, int64_t>, std::vector<int64_t>>;
  const auto stream_of = [&](int64_t world_size) {
    Stream stream;
    for (int64_t rank = world_size - 1; rank >= 0; --rank) {
      const auto dataset = open();  // every rank has its own
      for (int64_t step = 0; step < 5; ++step)
        for (int64_t slot = rank; slot < 6; slot += world_size)
          stream[{step, slot}] = dataset->batch(step, slot)->tokens;
    }
    return stream;
  };
  const Stream alone = stream_of(1);
  EXPECT_EQ(alone.size(), 30u);
  for (int64_t world_size = 2; world_size <= 8; ++world_size)
    EXPECT_EQ(stream_of(world_size), alone) << "world size " << world_size;
}

TEST_F(TokenDatasetTest, ABatchIsPureInAnyOrderAndFromAnyThread) {
  const auto dataset = open();
  std::vector<std::vector<int64_t>> expected;
  for (int64_t i = 0; i < 60; ++i) expected.push_back(open()->batch(i / 6, i % 6)->labels);
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int64_t k = 0; k < 120; ++k) {
        const int64_t i = (k * (2 * t + 7) + t * 13) % 60;
        auto batch = dataset->batch(i / 6, i % 6);
        if (!batch.ok() || batch->labels != expected[static_cast<size_t>(i)]) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(TokenDatasetTest, TheSeedChangesTheOrder) {
  const auto one = open()->batch(0, 0)->tokens;
  options_.seed = 43;
  EXPECT_NE(open()->batch(0, 0)->tokens, one);
}

// Never re-recorded for a change that is not about the order or the format.
TEST_F(TokenDatasetTest, BatchesAreGolden) {
  const auto dataset = open();
  Xxh3Stream hash;
  for (int64_t i = 0; i < 100; ++i) {
    auto batch = dataset->batch(i / 6, i % 6);
    hash.update(std::as_bytes(std::span(batch->tokens)));
    hash.update(std::as_bytes(std::span(batch->labels)));
  }
  EXPECT_EQ(hex64(hash.digest()), "61fff18b4c677f83");
}

TEST_F(TokenDatasetTest, ASequenceLongerThanTheDataIsAnErrorWithBothNumbers) {
  const auto tokens = static_cast<int64_t>(contents_.size()) + 1;
  options_.seq_len = tokens - 1;
  EXPECT_EQ(open()->sample_count(), 1);
  options_.seq_len = tokens;
  EXPECT_EQ(failure(Code::kConfig),
            text("training.seq_len ", tokens, " needs ", tokens + 1,
                 " tokens, but split \"train\" of ", (dir_ / "out").string(), " has ", tokens));
  options_.seq_len = 64;
  options_.split = "val";
  EXPECT_THAT(failure(Code::kConfig), HasSubstr("split \"val\""));
}

TEST_F(TokenDatasetTest, AVocabularyBelowTheDataIsAnError) {
  options_.vocab_size = 256;
  EXPECT_EQ(failure(Code::kConfig), "the model's vocabulary size 256 is below the 257 of " +
                                        (dir_ / "out").string() + " (tokenizer byte)");
  options_.vocab_size = 320;
  EXPECT_GT(open()->sample_count(), 0);
}

TEST_F(TokenDatasetTest, AMissingFolderOrManifestSaysHowToMakeOne) {
  std::filesystem::remove(dir_ / "out/manifest.json");
  EXPECT_EQ(failure(Code::kNotFound),
            (dir_ / "out").string() +
                " has no manifest.json; it was not made by `lockstep prepare`, or "
                "prepare did not finish");
  source_.path = dir_ / "nowhere";
  EXPECT_THAT(failure(Code::kNotFound),
              AllOf(HasSubstr((dir_ / "nowhere").string() + ": no such folder"),
                    HasSubstr("lockstep prepare INPUT")));
}

// By check_files when a run starts, and by the batch that needs it when it happens later.
TEST_F(TokenDatasetTest, ATruncatedShardIsNamed) {
  EXPECT_TRUE(check_files(posix_file_system(), source_, "train").ok());
  const auto dataset = open();
  std::filesystem::resize_file(dir_ / "out/train_00002.tokens", 5000);
  const std::string words = (dir_ / "out/train_00002.tokens").string() +
                            ": 5000 bytes long, but it must have 60096 for 30011 tokens: truncated";
  EXPECT_EQ(file_failure(), words);
  int failures = 0;
  for (int64_t step = 0; step < 40; ++step) {
    const auto batch = dataset->batch(step, 0);
    if (batch.ok()) continue;
    ++failures;
    EXPECT_EQ(batch.error().code, Code::kCorrupt);
    EXPECT_EQ(batch.error().message, words);
  }
  EXPECT_GT(failures, 0);
  std::filesystem::remove(dir_ / "out/train_00001.tokens");
  EXPECT_EQ(file_failure(),
            (dir_ / "out/train_00001.tokens").string() + " is missing, but the manifest lists it");
}

TEST_F(TokenDatasetTest, AFlippedByteReachesTheCallerOfBatch) {
  auto file = posix_file_system().open(dir_ / "out/train_00001.tokens");
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(file.value()->write_at(as_bytes("\x7f"), 20000).ok());
  const auto dataset = open();
  int failures = 0;
  for (int64_t i = 0; i < 60; ++i) {
    const auto batch = dataset->batch(i / 6, i % 6);
    if (batch.ok()) continue;
    ++failures;
    EXPECT_EQ(batch.error().code, Code::kCorrupt);
    EXPECT_THAT(batch.error().message, HasSubstr("train_00001.tokens: block 0 (bytes 0 to 60086)"));
  }
  EXPECT_GT(failures, 0);
}

// A shard and a manifest that agree, and yet hold a token that the tokenizer cannot have made.
TEST_F(TokenDatasetTest, ATokenOutsideTheVocabularyReachesTheCallerOfBatch) {
  std::vector<uint32_t> tokens(static_cast<size_t>(manifest_.shards[0].tokens), 'x');
  for (size_t i = 0; i < tokens.size(); i += 64) tokens[i] = 300;
  ASSERT_NO_FATAL_FAILURE(train_on(tokens));
  options_.vocab_size = 320;  // a padded model must not hide it
  const auto batch = open()->batch(0, 0);
  ASSERT_FALSE(batch.ok());
  EXPECT_EQ(batch.error().code, Code::kCorrupt);
  const int64_t sample = SampleOrder((manifest_.shards[0].tokens - 1) / 64, 42, 0)(0);
  EXPECT_EQ(batch.error().message,
            text((dir_ / "out/train_00000.tokens").string(), ": token 300 at byte offset ",
                 64 + sample * 128, " is not below the vocabulary size 257"));
}

// What one reader for all ranks of a node could spare: their slots are other samples, which lie in
// other blocks but for a few by chance, and these are fewer the larger the data are.
TEST_F(TokenDatasetTest, RanksOfANodeAskForOtherBytes) {
  using test_support::Cost;
  constexpr int64_t kRanks = 8, kSteps = 2, kTokens = 1 << 23;  // 256 blocks
  ASSERT_NO_FATAL_FAILURE(train_on(std::vector<uint32_t>(kTokens, 'x')));
  options_ = {"train", /*seq_len=*/2048, /*batch_size=*/1, /*slots=*/16, 42, 257};

  // Bytes that are read for the slots first, first + stride, … of the steps.
  const auto bytes_of = [&](int64_t first, int64_t stride) {
    test_support::Tally tally;
    test_support::CountingFileSystem disk(posix_file_system(), tally);
    const auto dataset = open_dataset(disk, source_, options_);
    EXPECT_TRUE(dataset.ok()) << message_of(dataset);
    const int64_t before = tally.of(Cost::kReadBytes);  // the manifest
    for (int64_t step = 0; step < kSteps; ++step)
      for (int64_t slot = first; slot < options_.slots; slot += stride)
        EXPECT_TRUE(dataset.value()->batch(step, slot).ok());
    return tally.of(Cost::kReadBytes) - before;
  };
  int64_t ranks = 0;
  for (int64_t rank = 0; rank < kRanks; ++rank) ranks += bytes_of(rank, kRanks);
  const int64_t one_reader = bytes_of(0, 1);
  RecordProperty("ranks_bytes", text(ranks));
  RecordProperty("one_reader_bytes", text(one_reader));
  EXPECT_GT(one_reader, 20 * (1 << 16));  // blocks are read, not the shard
  EXPECT_LT(one_reader, 40 * (1 << 16));
  EXPECT_GE(ranks, one_reader);
  EXPECT_LT(ranks, one_reader * 115 / 100);
}

}  // namespace
}  // namespace lockstep::data
