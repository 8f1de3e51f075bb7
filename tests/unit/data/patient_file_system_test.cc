#include "data/loader/patient_file_system.h"

#include <atomic>
#include <thread>

#include "tests/support/faulty_file_system.h"
#include "tests/unit/data/data_test_support.h"

namespace lockstep::data {
namespace {

using test_support::Fault;
using test_support::FaultyFileSystem;
using test_support::Op;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

// Sleeping costs nothing but the clock's time; each sleep may do something.
class JumpingClock final : public Clock {
 public:
  int64_t monotonic_ns() override { return now_ns_; }
  int64_t unix_ns() override { return 0; }
  void sleep_ns(int64_t duration_ns) override {
    now_ns_ += duration_ns;
    if (on_sleep) on_sleep(++sleeps_);
  }
  double slept_s() const { return static_cast<double>(now_ns_) * 1e-9; }
  std::function<void(int)> on_sleep;

 private:
  std::atomic<int64_t> now_ns_ = 0;
  int sleeps_ = 0;
};

class PatientFileSystemTest : public testing::Test {
 protected:
  PatientFileSystemTest() : disk_(posix_file_system()) {}
  void SetUp() override {
    write_text(dir_ / "shard", "0123456789");
    auto file = PatientFileSystem(disk_, 60, clock_).open(dir_ / "shard");
    ASSERT_TRUE(file.ok());
    file_ = std::move(file).value();
    EXPECT_EQ(disk_.calls(Op::kOpen), 0);
    EXPECT_EQ(read(*file_).value(), "3456");
  }
  Result<std::string> read(File& file) {
    std::string out(4, '\0');
    LOCKSTEP_RETURN_IF_ERROR(file.read_at(std::as_writable_bytes(std::span(out)), 3));
    return out;
  }
  test_support::TempDir dir_;
  FaultyFileSystem disk_;
  JumpingClock clock_;
  std::unique_ptr<File> file_;
};

TEST_F(PatientFileSystemTest, AFileThatIsWellIsReadOnce) {
  disk_.set_plan({});
  EXPECT_EQ(read(*file_).value(), "3456");
  EXPECT_EQ(disk_.calls(Op::kRead), 1);
  EXPECT_EQ(disk_.calls(Op::kOpen), 0);
  EXPECT_EQ(clock_.slept_s(), 0);
}

TEST_F(PatientFileSystemTest, AReadThatFailsIsTriedAgainOnTheFileOpenedAnew) {
  disk_.set_plan({.op = Op::kRead, .at_call = 1, .fault = Fault::kIoError});
  EXPECT_EQ(read(*file_).value(), "3456");
  EXPECT_EQ(disk_.calls(Op::kOpen), 1);
  EXPECT_EQ(disk_.calls(Op::kRead), 2);
  EXPECT_EQ(read(*file_).value(), "3456");  // and from then on on that one
  EXPECT_EQ(disk_.calls(Op::kOpen), 1);
}

TEST_F(PatientFileSystemTest, AFileThatVanishesAndComesBackIsWaitedFor) {
  disk_.set_plan({.op = Op::kRead, .at_call = 1, .fault = Fault::kIoError});  // a stale handle
  std::filesystem::rename(dir_ / "shard", dir_ / "away");
  clock_.on_sleep = [&](int sleeps) {
    if (sleeps == 5) std::filesystem::rename(dir_ / "away", dir_ / "shard");
  };
  EXPECT_EQ(read(*file_).value(), "3456");
  EXPECT_NEAR(clock_.slept_s(), 0.05 * 31, 1e-6);
}

TEST_F(PatientFileSystemTest, AfterTheDeadlineTheErrorNamesTheFile) {
  disk_.set_plan({.op = Op::kRead, .at_call = 1, .fault = Fault::kIoError, .and_after = true});
  const auto failed = read(*file_);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, Code::kTimeout);
  EXPECT_THAT(failed.error().message,
              AllOf(StartsWith((dir_ / "shard").string() + ": the read failed for 60 s and "),
                    HasSubstr("injected I/O error")));
  EXPECT_GT(clock_.slept_s(), 57);
  EXPECT_LE(clock_.slept_s(), 60);
}

TEST_F(PatientFileSystemTest, AReadThatDoesNotEndIsGivenUp) {
  auto file = PatientFileSystem(disk_, 0.2).open(dir_ / "shard");
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(read(**file).value(), "3456");
  disk_.set_plan({.op = Op::kRead, .at_call = 1, .fault = Fault::kHold});
  const auto failed = read(**file);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, Code::kTimeout);
  EXPECT_EQ(
      failed.error().message,
      (dir_ / "shard").string() + ": a read of 4 bytes at byte offset 3 did not end within 0.2 s");
  EXPECT_EQ(read(**file).value(), "3456");  // another one is not held up
}

TEST_F(PatientFileSystemTest, AFileThatIsNotThereWhenItIsFirstAskedForIsWaitedFor) {
  auto file = PatientFileSystem(disk_, 60, clock_).open(dir_ / "late");
  ASSERT_TRUE(file.ok());
  clock_.on_sleep = [&](int sleeps) {
    if (sleeps == 3) write_text(dir_ / "late", "abcdefgh");
  };
  EXPECT_EQ((*file)->size_bytes().value(), 8);
  EXPECT_NEAR(clock_.slept_s(), 0.05 * 7, 1e-6);
  EXPECT_EQ(read(**file).value(), "defg");
  auto never = PatientFileSystem(disk_, 60, clock_).open(dir_ / "never");
  EXPECT_EQ((*never)->size_bytes().error().code, Code::kTimeout);
}

TEST_F(PatientFileSystemTest, WhatIsTooShortIsToldAtOnce) {
  std::filesystem::resize_file(dir_ / "shard", 5);
  EXPECT_EQ(read(*file_).error().code, Code::kCorrupt);
  EXPECT_EQ(clock_.slept_s(), 0);
}

}  // namespace
}  // namespace lockstep::data
