#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <iostream>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/task_thread.h"
#include "tests/support/eventually.h"

namespace lockstep {
namespace {

TEST(Clock, UtcIsReadBack) {
  for (int64_t second : {int64_t{0}, int64_t{951782400}, int64_t{1795258623}})
    EXPECT_EQ(utc_seconds(utc_text(second * 1'000'000'000)), second);
  for (const char* other : {"", "2026-11-21", "2026-11-21T10:57:03", "2026-11-21T10:57:03Z "})
    EXPECT_FALSE(utc_seconds(other)) << other;
}

TEST(Clock, MonotonicNeverGoesBackAndSleepIsNotShort) {
  Clock& clock = system_clock();
  const int64_t before_ns = clock.monotonic_ns();
  clock.sleep_ns(2'000'000);
  EXPECT_GE(clock.monotonic_ns() - before_ns, 2'000'000);
  clock.sleep_ns(-5);
  EXPECT_GT(clock.unix_ns(), int64_t{1'600'000'000} * 1'000'000'000);
}

TEST(Clock, UtcText) {
  EXPECT_EQ(utc_text(0), "1970-01-01T00:00:00Z");
  EXPECT_EQ(utc_text(int64_t{1'795'258'623} * 1'000'000'000 + 999), "2026-11-21T10:57:03Z");
  EXPECT_EQ(utc_text(-1), "1969-12-31T23:59:59Z");
}

TEST(Log, LineHasTimeLevelAndPrefix) {
  set_log_prefix("rank 2");
  testing::internal::CaptureStderr();
  log_warning("disk ", 93, " % full");
  set_log_prefix("");
  log_info("plain");
  const std::string time = "[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2},[0-9]{3}";
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::MatchesRegex("\\[lockstep\\] " + time +
                                    " - WARNING - rank 2: disk 93 % full\n"
                                    "\\[lockstep\\] " +
                                    time + " - INFO - plain\n"));
}

TEST(Log, WhatPeopleShouldSeeGoesToStandardOutputTooWhereThatIsAsked) {
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  log_notice("not shown");
  show_log_on_stdout(true);
  log_info("memory {}");
  log_notice("resumed");
  for (int i = 0; i < 3; ++i) log_warning("late");  // once: each step may say it
  log_error("wrong");
  show_log_on_stdout(false);
  log_error("not shown");
  EXPECT_THAT(testing::internal::GetCapturedStdout(),
              testing::MatchesRegex("\\[lockstep\\] .* - INFO - resumed\n"
                                    "\\[lockstep\\] .* - WARNING - late\n"
                                    "\\[lockstep\\] .* - ERROR - wrong\n"));
  const std::string log = testing::internal::GetCapturedStderr();
  for (const char* each : {"memory", "resumed", "late", "wrong"})
    EXPECT_THAT(log, testing::HasSubstr(each));
}

TEST(Log, LinesOfThreadsAreNotMixed) {
  testing::internal::CaptureStderr();
  std::vector<std::thread> threads;
  const std::string body(9000, 'x');  // more than a pipe writes in one piece
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int k = 0; k < 20; ++k) log_error(body, "end");
    });
  for (std::thread& thread : threads) thread.join();
  const std::vector<std::string> lines = split(testing::internal::GetCapturedStderr(), '\n');
  ASSERT_EQ(lines.size(), 81u);
  for (size_t i = 0; i < 80; ++i) EXPECT_TRUE(lines[i].ends_with("ERROR - " + body + "end"));
}

// A pipe that is full, as a file system that hangs would be, until it is read.
struct FullPipe {
  FullPipe() {
    LOCKSTEP_CHECK(::pipe2(ends, O_NONBLOCK) == 0);
    while (::write(ends[1], "\n", 1) == 1) {
    }
    for (const int end : ends) ::fcntl(end, F_SETFL, 0);
  }
  std::string read() {  // until nobody writes into it any more
    std::string all;
    char block[4096];
    for (ssize_t n; (n = ::read(ends[0], block, sizeof block)) > 0;)
      all.append(block, static_cast<size_t>(n));
    return all;
  }
  int ends[2];
};

// What is wrong with a log of the numbers from 0 on: each is there, in order, or counted among
// those that were left out; and the last line is the reason.
std::string wrong_with(const std::vector<std::string>& lines, int64_t most) {
  int64_t next = 0, left_out = 0;
  for (const std::string& line : lines) {
    if (!line.starts_with(kLogLineStart)) continue;  // what the pipe was filled with
    const std::string said = line.substr(line.find(" - ") + 3);
    if (said == "ERROR - the reason")
      return next == most && left_out > 0 ? "" : "lines are missing";
    if (said.starts_with("WARNING - ")) {
      const int64_t count = std::stoll(said.substr(10));
      left_out += count, next += count;
    } else if (said != text("INFO - ", next++)) {
      return "out of order: " + line;
    }
  }
  return "no reason";
}

// In a process of its own: from here on all that it logs is written by a thread.
[[noreturn]] void log_on_a_thread_while_it_hangs() {
  constexpr auto kLong = std::chrono::milliseconds(test_support::kPatienceMs);
  constexpr auto kShort = std::chrono::milliseconds(1);
  constexpr int64_t kMost = TaskThread::kMostWaiting + 7;
  const int shown = ::dup(STDERR_FILENO);
  FullPipe pipe;
  ::dup2(pipe.ends[1], STDERR_FILENO);
  ::close(pipe.ends[1]);
  log_on_a_thread();
  for (int64_t i = 0; i < kMost; ++i) log_info(i);
  const bool hung = !finish_task_threads(kShort);
  std::string read;
  std::thread reader([&] { read = pipe.read(); });
  finish_task_threads(kLong);
  log_error("the reason");
  const bool written = finish_task_threads(kLong);
  ::dup2(shown, STDERR_FILENO);
  reader.join();
  std::cerr << "hung: " << hung << ", written: " << written
            << ", wrong: " << wrong_with(split(read, '\n'), kMost) << std::endl;
  ::_exit(0);
}

TEST(Log, OfAThreadLinesAreInOrderAndThoseLeftOutAreCounted) {
  EXPECT_EXIT(log_on_a_thread_while_it_hangs(), testing::ExitedWithCode(0),
              "^hung: 1, written: 1, wrong: \n$");
}

}  // namespace
}  // namespace lockstep
