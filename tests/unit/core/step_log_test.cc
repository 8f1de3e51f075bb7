#include "core/train/step_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/text.h"
#include "tests/support/faulty_file_system.h"
#include "tests/support/temp_dir.h"

namespace lockstep::core {
namespace {

using testing::ElementsAre;

std::string line_of(int64_t step, const std::string& loss_hex) {
  return text("{\"step\":", step, ",\"loss_hex\":\"", loss_hex, "\",\"tokens\":8}");
}

class StepLogTest : public testing::Test {
 protected:
  void write(const std::string& contents) {
    ASSERT_TRUE(publish_file(files_, path_, contents).ok());
  }
  std::string contents(const std::string& name) {
    return read_file(files_, folder_ / name).value();
  }
  std::vector<int64_t> steps() {
    const auto log = StepLog::open(files_, path_);
    EXPECT_TRUE(log.ok()) << log.error().message;
    std::vector<int64_t> steps;
    for (const LoggedStep& each : log.value()->steps()) steps.push_back(each.step);
    return steps;
  }

  static void append(StepLog& log, LoggedStep logged, const std::string& line) {
    log.write(line);
    log.add(std::move(logged));
  }

  FileSystem& files_ = posix_file_system();
  test_support::TempDir folder_;
  const std::filesystem::path path_ = folder_ / "metrics.jsonl";
};

TEST_F(StepLogTest, AppendsAcrossRestartsAndKnowsWhatWasLoggedFirst) {
  for (const char* loss : {"0x1p+0", "0x1.8p+0"}) {
    auto log = StepLog::open(files_, path_);
    ASSERT_TRUE(log.ok()) << log.error().message;
    append(*log.value(), {1, loss}, line_of(1, loss));
  }
  const auto log = StepLog::open(files_, path_).value();
  EXPECT_EQ(log->steps().size(), 2u);
  EXPECT_EQ(*log->first_loss_hex(1), "0x1p+0");
  EXPECT_EQ(log->first_loss_hex(2), nullptr);
  EXPECT_EQ(contents("metrics.jsonl"), line_of(1, "0x1p+0") + "\n" + line_of(1, "0x1.8p+0") + "\n");
}

TEST_F(StepLogTest, ALastLineThatAKillCutOffGoes) {
  write(line_of(1, "a") + "\n" + line_of(2, "b").substr(0, 9));
  EXPECT_THAT(steps(), ElementsAre(1));
  EXPECT_EQ(contents("metrics.jsonl"), line_of(1, "a") + "\n");
  EXPECT_FALSE(files_.exists(folder_ / "metrics.damaged.jsonl"));
}

TEST_F(StepLogTest, DamagedLinesAreSetAsideAndTrainingGoesOn) {
  const std::vector<std::string> damaged = {
      "{\"step\":2,\"loss_hex\":\"b\"",       // torn
      std::string("\0\0\0", 3),               // a block that was never written
      "{\"step\":\"2\",\"loss_hex\":\"b\"}",  // another type
      "{\"step\":2,\"loss_hex\":7}",          // and there
      "{\"step\":2}",
      "[]",
      "7",
      "{\"step\":2,\"loss_hex\":\"b\",\"t\":\"x\"}"};
  std::string all = line_of(1, "a") + "\n", aside;
  for (const std::string& line : damaged) aside += line + "\n";
  write(all + aside + "\n" + line_of(3, "c") + "\n");
  all += line_of(3, "c") + "\n";
  for (int again = 0; again < 2; ++again) {
    EXPECT_THAT(steps(), ElementsAre(1, 3));
    EXPECT_EQ(contents("metrics.jsonl"), all);
    EXPECT_EQ(contents("metrics.damaged.jsonl"), aside);
  }
  write(all + "oops\n");
  EXPECT_THAT(steps(), ElementsAre(1, 3));
  EXPECT_EQ(contents("metrics.damaged.jsonl"), aside + "oops\n") << "what was there stays";
}

TEST_F(StepLogTest, WithNoRoomForThemTheyStay) {
  ASSERT_TRUE(files_.make_directories(folder_ / "metrics.damaged.jsonl.tmp").ok());
  const std::string all = line_of(1, "a") + "\noops\n";
  write(all);
  auto log = StepLog::open(files_, path_).value();
  append(*log, {2, "b"}, line_of(2, "b"));
  EXPECT_EQ(contents("metrics.jsonl"), all + line_of(2, "b") + "\n");
}

// The folder's storage is away for a while; the descriptor may be of no use afterwards.
TEST_F(StepLogTest, WhatCannotBeWrittenIsWrittenLater) {
  using test_support::Fault;
  using test_support::FaultyFileSystem;
  using test_support::Op;
  FaultyFileSystem storage(files_);
  auto log = StepLog::open(storage, path_).value();
  append(*log, {1, "a"}, line_of(1, "a"));
  storage.set_plan({.op = Op::kAny, .at_call = 1, .fault = Fault::kIoError, .and_after = true});
  for (const int64_t step : {2, 3}) append(*log, {step, "b"}, line_of(step, "b"));
  EXPECT_EQ(contents("metrics.jsonl"), line_of(1, "a") + "\n");
  EXPECT_EQ(log->steps().size(), 3u);
  storage.set_plan({});
  append(*log, {4, "d"}, line_of(4, "d"));
  EXPECT_THAT(steps(), ElementsAre(1, 2, 3, 4));
  storage.set_plan({.op = Op::kWrite, .at_call = 1, .fault = Fault::kShortWrite});
  append(*log, {5, "e"}, line_of(5, "e"));
  log->flush();
  EXPECT_THAT(steps(), ElementsAre(1, 2, 3, 4, 5));
}

// A run that was given up on another machine goes on after a new one has taken the folder.
TEST_F(StepLogTest, LinesOfAnotherRunInTheFile_AreNotWrittenOver) {
  auto log = StepLog::open(files_, path_).value();
  append(*log, {1, "a"}, line_of(1, "a"));
  auto other = StepLog::open(files_, path_).value();
  append(*other, {2, "b"}, line_of(2, "b"));
  for (const int64_t step : {2, 3}) append(*log, {step, "x"}, line_of(step, "x"));
  append(*other, {3, "c"}, line_of(3, "c"));
  EXPECT_EQ(contents("metrics.jsonl"),
            line_of(1, "a") + "\n" + line_of(2, "b") + "\n" + line_of(3, "c") + "\n");
}

}  // namespace
}  // namespace lockstep::core
