#include "data/loader/open_dataset.h"

#include <map>

#include "data/formats/npy_file.h"
#include "data/loader/npy_dataset.h"
#include "data/order/sample_order.h"
#include "tests/support/faulty_file_system.h"
#include "tests/unit/data/foreign_files.h"

namespace lockstep::data {
namespace {

using test_support::Fault;
using test_support::FaultyFileSystem;
using test_support::Op;
using testing::AllOf;
using testing::HasSubstr;

class OpenDatasetTest : public testing::Test {
 protected:
  // A folder made by prepare, of one letter over and over.
  std::string prepared(const std::string& name, char letter, int64_t bytes) {
    write_text(dir_ / (name + ".txt"), std::string(static_cast<size_t>(bytes), letter));
    PrepareOptions options = options_for(dir_ / (name + ".txt"), dir_ / name);
    options.val_millionths = 0;
    const auto report = prepare_bytes(options);
    EXPECT_TRUE(report.ok()) << message_of(report);
    return dir_ / name;
  }
  auto open(const Config::Data& data) { return open_dataset(posix_file_system(), data, options_); }
  DataSummary summary(const Config::Data& data) {
    const auto summary = summary_of(posix_file_system(), data);
    EXPECT_TRUE(summary.ok()) << message_of(summary);
    return summary.ok() ? summary.value() : DataSummary{};
  }
  test_support::TempDir dir_;
  TokenDataset::Options options_{"train", 10, 2, 5, 42, 300};
};

TEST_F(OpenDatasetTest, EpochsAreSteps) {
  write_text(dir_ / "a.bin", bytes_of<uint16_t>(counting_tokens(5000, 300)));
  const auto dataset = open({.path = dir_ / "a.bin", .kind = DataKind::kNanogpt});
  ASSERT_TRUE(dataset.ok()) << message_of(dataset);
  Config config;  // 499 samples, 10 a step
  config.training.slots = 5;
  config.training.local_batch_size = 2;
  config.training.epochs = 3;
  const auto resolved = [&dataset](Config given) {
    return resolve_epochs(given, *dataset.value()).ok() ? given.training.steps : -1;
  };
  EXPECT_EQ(resolved(config), 150) << "1,497 samples, and 3 of the fourth epoch";
  Config again = config;
  ASSERT_TRUE(resolve_epochs(again, *dataset.value()));
  EXPECT_EQ(again.training.epochs, 0);
  config.training.steps = 151;
  config.training.epochs = 0;
  EXPECT_EQ(resolved(config), 151);
  config.training.epochs = 3;
  config.data.sources = {"a", "b"};
  const auto several = resolve_epochs(config, *dataset.value());
  EXPECT_THAT(several.error().message, HasSubstr("data.sources has 2; give training.steps"));
  config.data.sources.clear();
  config.training.epochs = int64_t{1} << 45;
  const auto many = resolve_epochs(config, *dataset.value());
  EXPECT_THAT(many.error().message, HasSubstr("too many to count"));
}

TEST_F(OpenDatasetTest, AForeignFileIsSampledAsOwnShardsAre) {
  const auto tokens = counting_tokens(5000, 300);
  write_text(dir_ / "a.bin", bytes_of<uint16_t>(tokens));
  write_text(dir_ / "a.npy", npy_preamble("<i4", {5000}) + bytes_of<int32_t>(tokens));
  for (const Config::Data& data : {Config::Data{.path = dir_ / "a.bin", .kind = DataKind::kNanogpt},
                                   Config::Data{.path = dir_ / "a.npy", .kind = DataKind::kNpy}}) {
    const auto dataset = open(data);
    ASSERT_TRUE(dataset.ok()) << message_of(dataset);
    ASSERT_EQ(dataset.value()->sample_count(), 499);
    const auto batch = dataset.value()->batch(100, 3);  // in the third epoch
    ASSERT_TRUE(batch.ok()) << message_of(batch);
    for (int64_t row = 0; row < 2; ++row) {
      const int64_t g = (100 * 5 + 3) * 2 + row, sample = SampleOrder(499, 42, g / 499)(g % 499);
      for (int64_t t = 0; t < 10; ++t) {
        const auto at = static_cast<size_t>(row * 10 + t);
        EXPECT_EQ(batch.value().tokens[at], (sample * 10 + t) % 300);
        EXPECT_EQ(batch.value().labels[at], (sample * 10 + t + 1) % 300);
      }
    }
    EXPECT_EQ(summary(data).vocab_size, 0);
  }
}

TEST_F(OpenDatasetTest, ABatchArrayKeepsItsFileOrder) {
  write_text(dir_ / "a.npy",
             npy_preamble("<i4", {2, 10, 10}) + bytes_of<int32_t>(counting_tokens(200, 300)));
  const Config::Data data{.path = dir_ / "a.npy", .kind = DataKind::kNpy};
  const auto dataset = open(data);
  ASSERT_TRUE(dataset.ok()) << message_of(dataset);
  EXPECT_EQ(dataset.value()->batch(0, 1).value().tokens[0], 20);
  EXPECT_EQ(summary(data).hash, hash_npy(posix_file_system(), dir_ / "a.npy").value());
}

TEST_F(OpenDatasetTest, AMixtureDrawsByWeightAndNamesEverySourceInItsHash) {
  const std::string a = prepared("a", 'a', 1001), b = prepared("b", 'b', 2001),
                    c = prepared("c", 'c', 501);
  const Config::Data data{.sources = {a, b, c}, .weights = {5, 3, 2}};
  const auto dataset = open(data);
  ASSERT_TRUE(dataset.ok()) << message_of(dataset);
  EXPECT_EQ(dataset.value()->sample_count(), 100 + 200 + 50);
  EXPECT_EQ(dataset.value()->sample(99).value().tokens[0], 'a');
  EXPECT_EQ(dataset.value()->sample(100).value().tokens[0], 'b');
  EXPECT_EQ(dataset.value()->sample(349).value().tokens[0], 'c');
  std::map<int64_t, int> seen;
  for (int64_t step = 0; step < 100; ++step)
    for (int64_t slot = 0; slot < 5; ++slot) {
      const auto batch = dataset.value()->batch(step, slot);
      ASSERT_TRUE(batch.ok()) << message_of(batch);
      ++seen[batch.value().tokens[0]];
      ++seen[batch.value().tokens[10]];
    }
  EXPECT_EQ(seen, (std::map<int64_t, int>{{'a', 500}, {'b', 300}, {'c', 200}}));
  const auto hash = [&](const std::string& path) { return summary({.path = path}).hash; };
  EXPECT_EQ(summary(data).hash, text("5*", hash(a), ",3*", hash(b), ",2*", hash(c)));
  EXPECT_EQ(summary(data).vocab_size, 257);
}

// Files are waited for when they are read, so what is missing at the start is told by check_files.
TEST_F(OpenDatasetTest, AMissingFileOfAnotherProgramIsToldAtOnce) {
  write_text(dir_ / "megatron/a_train.bin", std::string(200, 'a'));
  write_text(dir_ / "megatron/a_val.bin", std::string(200, 'a'));
  const Config::Data data{.path = dir_ / "megatron", .kind = DataKind::kMegatron};
  const auto checked = check_files(posix_file_system(), data, "val");
  ASSERT_FALSE(checked.ok());
  EXPECT_EQ(checked.error().code, Code::kConfig);
  EXPECT_THAT(checked.error().message, HasSubstr("a_train.idx"));
  const Config::Data raw{.path = dir_ / "raw", .kind = DataKind::kNanogpt};
  write_text(dir_ / "raw/train.bin", std::string(200, 'a'));
  EXPECT_TRUE(check_files(posix_file_system(), raw, "train").ok());
  write_text(dir_ / "raw/val.bin", std::string(201, 'a'));
  EXPECT_THAT(message_of(check_files(posix_file_system(), raw, "val")), HasSubstr("val.bin"));
}

// One source in a list is that source.
TEST_F(OpenDatasetTest, AListOfOneIsNoMixture) {
  const std::string a = prepared("a", 'a', 1001);
  EXPECT_EQ(summary({.sources = {a}, .weights = {7}}).hash, summary({.path = a}).hash);
}

TEST_F(OpenDatasetTest, WithoutWeightsTheTokensDecideAndTemperatureEvensThem) {
  const std::string a = prepared("a", 'a', 899), b = prepared("b", 'b', 99);
  EXPECT_THAT(summary({.sources = {a, b}}).hash, AllOf(HasSubstr("900*"), HasSubstr(",100*")));
  EXPECT_THAT(summary({.sources = {a, b}, .temperature = 2}).hash,
              AllOf(HasSubstr("1048576*"), HasSubstr(",349525*")));
}

// Its place among the sources and the weights do not change what a source gives out, and when.
TEST_F(OpenDatasetTest, ASourceKeepsItsOrderInAnotherMixture) {
  const std::string a = prepared("a", 'a', 301);
  write_text(dir_ / "b.txt", some_text(1, 40));
  PrepareOptions prepare_options = options_for(dir_ / "b.txt", dir_ / "b");
  prepare_options.val_millionths = 0;
  ASSERT_TRUE(prepare_bytes(prepare_options).ok());
  options_.batch_size = 1;
  options_.slots = 1;
  const auto of_b = [&](const Config::Data& data) {
    const auto dataset = open(data);
    std::vector<std::vector<int64_t>> samples;
    for (int64_t step = 0; samples.size() < 50; ++step) {
      auto tokens = dataset.value()->batch(step, 0).value().tokens;
      if (tokens != std::vector<int64_t>(10, 'a')) samples.push_back(std::move(tokens));
    }
    return samples;
  };
  EXPECT_EQ(of_b({.sources = {a, dir_ / "b"}, .weights = {1, 1}}),
            of_b({.sources = {dir_ / "b", a}, .weights = {5, 2}}));
}

TEST_F(OpenDatasetTest, SourcesThatDoNotGoTogetherAreNamed) {
  const std::string a = prepared("a", 'a', 1001), tiny = prepared("tiny", 'b', 8);
  EXPECT_THAT(message_of(open({.sources = {a, tiny}, .weights = {1, 1}})),
              AllOf(HasSubstr("training.seq_len 10 needs 11 tokens"), HasSubstr(tiny)));
  EXPECT_THAT(message_of(open({.sources = {a, dir_ / "none"}})), HasSubstr("none: no such folder"));
  EXPECT_THAT(message_of(open({})), HasSubstr("no data"));
  auto manifest = read_manifest(posix_file_system(), tiny);
  ASSERT_TRUE(manifest.ok());
  manifest.value().recipe.tokenizer_hash = "0123456789abcdef";
  ASSERT_TRUE(publish_file(posix_file_system(), dir_ / "tiny/manifest.json",
                           seal_manifest(manifest.value()))
                  .ok());
  EXPECT_THAT(message_of(open({.sources = {a, tiny}, .weights = {1, 1}})),
              AllOf(HasSubstr("tokenizer byte 0123456789abcdef"), HasSubstr("one tokenizer")));
}

// Where a mapped file would end the process by SIGBUS.
TEST_F(OpenDatasetTest, AFileThatShrinksWhileItIsReadIsNamed) {
  write_text(dir_ / "t.bin", bytes_of<uint16_t>(counting_tokens(5000, 300)));
  const std::string a = prepared("a", 'a', 4001);
  for (const auto& [data, file] :
       {std::pair{Config::Data{.path = dir_ / "t.bin", .kind = DataKind::kNanogpt}, dir_ / "t.bin"},
        std::pair{Config::Data{.path = a}, std::filesystem::path(a) / "train_00000.tokens"}}) {
    const auto dataset = open(data);
    ASSERT_TRUE(dataset.ok()) << message_of(dataset);
    auto shrinking = posix_file_system().open(file);
    ASSERT_TRUE(shrinking.ok() && shrinking.value()->truncate(100).ok());
    int named = 0;
    for (int64_t step = 0; step < 50; ++step) {
      const auto batch = dataset.value()->batch(step, 0);
      if (batch.ok()) continue;  // all of it lay in the first 100 bytes
      EXPECT_EQ(batch.error().code, Code::kCorrupt);
      EXPECT_THAT(batch.error().message, HasSubstr(file.string()));
      ++named;
    }
    EXPECT_GT(named, 40);
  }
}

TEST_F(OpenDatasetTest, AReadThatFailsForAWhileIsTriedAgain) {
  const std::string a = prepared("a", 'a', 1001);
  FaultyFileSystem disk(posix_file_system());
  const auto dataset = open_dataset(disk, {.path = a, .read_timeout_seconds = 0.3}, options_);
  ASSERT_TRUE(dataset.ok()) << message_of(dataset);
  disk.set_plan({.op = Op::kRead, .at_call = 1, .fault = Fault::kIoError});
  EXPECT_TRUE(dataset.value()->batch(0, 0).ok());
  disk.set_plan({.op = Op::kRead, .at_call = 1, .fault = Fault::kIoError, .and_after = true});
  const auto batch = dataset.value()->batch(0, 0);
  ASSERT_FALSE(batch.ok());
  EXPECT_EQ(batch.error().code, Code::kTimeout);
  EXPECT_THAT(batch.error().message, HasSubstr("a/train_00000.tokens: the read failed for 0.3 s"));
}

}  // namespace
}  // namespace lockstep::data
