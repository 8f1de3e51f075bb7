#include "launcher/host/run_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>

#include "base/clock.h"
#include "base/json.h"
#include "base/text.h"
#include "launcher/host/other_runs.h"
#include "launcher/host/process.h"
#include "tests/support/temp_dir.h"

namespace lockstep::launcher {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class RunFiles : public testing::Test {
 protected:
  void write(const std::string& name, std::string_view contents) {
    EXPECT_TRUE(publish_file(fs, folder / name, contents));
  }
  FileSystem& fs = posix_file_system();
  const test_support::TempDir folder;
};

TEST_F(RunFiles, EventsAreAppendedAndATornLineIsEnded) {
  write("events.jsonl", "{\"event\": \"old\"}\n{\"event\": \"to");
  auto log = EventLog::open(fs, folder / "events.jsonl");
  ASSERT_TRUE(log) << log.error().message;
  LoggedEvent event;
  event.event = "worker_exit";
  event.generation = 2;
  event.world_size = 3;
  event.rank = 0;
  event.reason = "not \xff UTF-8 \"quoted\"\n";
  event.unix_ns = 1'800'000'000'500'000'000;
  event.error = "disk full: /run/x";
  event.node = "n1";
  event.nodes = {"n1", "n2"};
  event.redone_steps = 95;
  event.redone_s = 9.5;
  log->append(event);
  const auto lines = split(read_file(fs, folder / "events.jsonl").value(), '\n');
  ASSERT_EQ(lines.size(), 4u);
  const auto json = nlohmann::json::parse(lines[2]);
  EXPECT_EQ(json["event"], "worker_exit");
  EXPECT_EQ(json["generation"], 2);
  EXPECT_EQ(json["rank"], 0);
  EXPECT_FALSE(json.contains("pid"));
  EXPECT_EQ(json["error"], "disk full: /run/x");
  EXPECT_EQ(json["node"], "n1");
  EXPECT_EQ(json["nodes"][1], "n2");
  EXPECT_EQ(json["redone_steps"], 95);
  EXPECT_EQ(json["redone_s"], 9.5);
  EXPECT_EQ(json["t"], 1'800'000'000.5);
}

TEST_F(RunFiles, ACoordinatorThatWakesUpOverwritesNothing) {
  auto stopped = EventLog::open(fs, folder / "events.jsonl");
  auto successor = EventLog::open(fs, folder / "events.jsonl");
  ASSERT_TRUE(stopped && successor);
  LoggedEvent event;
  for (const char* name : {"first_step", "recovered", "woken", "done"}) {
    event.event = name;
    (event.event == "woken" ? stopped : successor)->append(event);
  }
  const auto lines = split(read_file(fs, folder / "events.jsonl").value(), '\n');
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_EQ(nlohmann::json::parse(lines[1])["event"], "recovered");
  EXPECT_EQ(nlohmann::json::parse(lines[2])["event"], "woken");
  EXPECT_EQ(nlohmann::json::parse(lines[3])["event"], "done");
}

TEST_F(RunFiles, MembershipRoundTrips) {
  Membership membership;
  membership.generation = 3;
  membership.world_size = 1;
  membership.agent_pid = 4711;
  membership.state = "running";
  membership.workers.push_back({0, 4712, "/x/page_0", {}});
  membership.workers[0].progress.step = 9;
  membership.workers[0].progress.save_phase = SavePhase::kVoting;
  membership.health = {"n1: it is hot"};
  ASSERT_TRUE(publish_membership(fs, folder / "workers.json", membership));
  const auto read = read_membership(fs, folder / "workers.json");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read.value().generation, 3);
  EXPECT_EQ(read.value().agent_pid, 4711);
  ASSERT_EQ(read.value().workers.size(), 1u);
  EXPECT_EQ(read.value().workers[0].pid, 4712);
  EXPECT_EQ(read.value().workers[0].progress_page, "/x/page_0");
  EXPECT_EQ(read.value().workers[0].progress.step, 9);
  EXPECT_EQ(read.value().workers[0].progress.save_phase, SavePhase::kVoting);
  EXPECT_EQ(read.value().health, membership.health);
  write("broken.json", "{\"generation\": 1}");
  EXPECT_EQ(read_membership(fs, folder / "broken.json").error().code, Code::kCorrupt);
  EXPECT_EQ(read_membership(fs, folder / "none.json").error().code, Code::kNotFound);
}

TEST_F(RunFiles, LastLinesStayInTheirGeneration) {
  write("log", "old 1\nold 2\nnew 1\n\nnew 2\nnew 3");
  EXPECT_EQ(file_size(fs, folder / "log"), 30);
  EXPECT_THAT(last_lines(fs, folder / "log", 12, 8), ElementsAre("new 1", "new 2", "new 3"));
  EXPECT_THAT(last_lines(fs, folder / "log", 12, 2), ElementsAre("new 2", "new 3"));
  EXPECT_THAT(last_lines(fs, folder / "log", 30, 8), IsEmpty());
  EXPECT_THAT(last_lines(fs, folder / "none", 0, 8), IsEmpty());
  EXPECT_EQ(file_size(fs, folder / "none"), 0);
}

// Sleeping costs nothing but the clock's time; what others do meanwhile is told to it.
class SkippingClock final : public Clock {
 public:
  int64_t monotonic_ns() override { return now_ns_; }
  int64_t unix_ns() override { return now_ns_; }
  void sleep_ns(int64_t duration_ns) override {
    now_ns_ += duration_ns;
    on_sleep();
  }
  std::function<void()> on_sleep = [] {};

 private:
  int64_t now_ns_ = 0;
};

// A job that only waits for nodes says the same again and again.
TEST_F(RunFiles, AnotherJobIsNoticedByItsWritingAlone) {
  Membership other;
  other.state = "running";
  other.job = "other";
  const auto path = folder / "workers.json";
  ASSERT_TRUE(publish_membership(fs, path, other));
  constexpr int64_t kEveryNs = 200'000'000;
  SkippingClock clock;
  EXPECT_TRUE(nobody_else_runs(fs, clock, folder.path(), "own", kEveryNs));
  clock.on_sleep = [&] {  // a second later by the file's time, which is coarse
    const auto written = std::filesystem::last_write_time(path);
    EXPECT_TRUE(publish_membership(fs, path, other));
    std::filesystem::last_write_time(path, written + std::chrono::seconds(1));
  };
  const auto refused = nobody_else_runs(fs, clock, folder.path(), "own", kEveryNs);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("by job other"), std::string::npos);
}

// An agent was killed, and later another run of this program, in another folder, got its id.
TEST_F(RunFiles, AnIdThatIsUsedAgainIsNoOtherRun) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  Membership last;
  last.state = "running";
  last.agent_pid = child;
  const auto path = folder / "workers.json";
  ASSERT_TRUE(publish_membership(fs, path, last));
  const auto refused = nobody_else_runs(fs, system_clock(), folder.path(), "", 0);
  EXPECT_THAT(refused.ok() ? "" : refused.error().message,
              testing::HasSubstr(text("is being trained by process ", child)));
  std::filesystem::last_write_time(
      path, std::filesystem::last_write_time(path) - std::chrono::minutes(1));
  const auto free = nobody_else_runs(fs, system_clock(), folder.path(), "", 0);
  EXPECT_TRUE(free.ok()) << free.error().message;
  ASSERT_TRUE(started_unix_ns(child));
  EXPECT_NEAR(static_cast<double>(*started_unix_ns(child)),
              static_cast<double>(system_clock().unix_ns()), 60e9);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(started_unix_ns(child));
}

}  // namespace
}  // namespace lockstep::launcher
