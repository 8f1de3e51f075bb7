// Logs whose storage does not answer: a named pipe without a reader hangs as that does.
#include "launcher/agent/log_files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "launcher/host/process.h"
#include "tests/support/eventually.h"
#include "tests/support/temp_dir.h"

namespace lockstep::launcher {
namespace {

using test_support::eventually;
using testing::ElementsAre;
using testing::IsEmpty;

class LogFilesTest : public testing::Test {
 protected:
  LogFilesTest() { std::filesystem::create_directory(own_); }
  ~LogFilesTest() override { back(); }
  void away() { ASSERT_EQ(::mkfifo(log_.c_str(), 0600), 0); }
  // The log is a file, and who waits for the pipe goes on.
  void back() {
    if (!std::filesystem::is_fifo(log_)) return;
    const std::filesystem::path pipe = folder_ / "pipe";
    std::filesystem::rename(log_, pipe);
    std::ofstream(log_).flush();
    reader_ = ::open(pipe.c_str(), O_RDWR);
  }
  std::string logged() const { return read_file(posix_file_system(), log_).value(); }

  const test_support::TempDir folder_;
  const std::filesystem::path log_ = folder_ / "rank_00000.log", own_ = folder_ / "own";
  int reader_ = -1;
};

TEST_F(LogFilesTest, AreThemselvesWhereTheirStorageAnswers) {
  LogFiles logs(posix_file_system(), own_);
  const LogPlace first = logs.place(log_);
  EXPECT_EQ(first.file, log_);
  EXPECT_EQ(first.start, 0);
  ASSERT_TRUE(append_file(log_, "one\ntwo\n"));
  EXPECT_THAT(logs.last_lines(first, 8), ElementsAre("one", "two"));
  const LogPlace second = logs.place(log_, first);
  EXPECT_EQ(second.start, 8);
  EXPECT_THAT(logs.last_lines(second, 8), IsEmpty());
}

TEST_F(LogFilesTest, LinesGoToTheNodesOwnFileAndFollowWhenStorageIsBack) {
  away();
  LogFiles logs(posix_file_system(), own_);
  const LogPlace place = logs.place(log_);
  EXPECT_EQ(place.log, log_);
  EXPECT_EQ(place.file.parent_path(), own_);
  ASSERT_TRUE(append_file(place.file, "one\nhalf a li"));
  EXPECT_THAT(logs.last_lines(place, 8), ElementsAre("one", "half a li"));
  EXPECT_EQ(logs.place(log_, place).file, place.file) << "its writer goes on there";
  logs.follow();
  back();
  EXPECT_TRUE(eventually([&] {
    logs.follow();
    return logged() == "one\n";
  })) << logged();
  ASSERT_TRUE(append_file(place.file, "ne\n"));
  EXPECT_TRUE(eventually([&] {
    logs.follow();
    return logged() == "one\nhalf a line\n";
  })) << logged();
}

TEST_F(LogFilesTest, WhatIsLeftIsThereAtTheEnd) {
  away();
  {
    LogFiles logs(posix_file_system(), own_);
    ASSERT_TRUE(append_file(logs.place(log_).file, "one\ntwo"));
    back();
  }
  EXPECT_EQ(logged(), "one\ntwo");
}

TEST_F(LogFilesTest, NobodyWaitsForOtherLogsBehindOneThatHangs) {
  away();
  LogFiles logs(posix_file_system(), own_);
  const auto other = folder_ / "rank_00001.log";
  const LogPlace before = logs.place(other);
  ASSERT_TRUE(append_file(other, "one\n"));
  EXPECT_NE(logs.place(log_).file, log_);
  EXPECT_THAT(logs.last_lines(before, 8), IsEmpty());
  const LogPlace now = logs.place(other, before);  // who writes there goes on
  EXPECT_EQ(now.file, other);
  EXPECT_FALSE(now.start);
  EXPECT_NE(logs.place(folder_ / "rank_00002.log").file, folder_ / "rank_00002.log");
  back();  // the end waits for it
}

}  // namespace
}  // namespace lockstep::launcher
