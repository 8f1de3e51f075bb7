// One sentence for each state of a run, and what of the events makes it.
#include "cli/status/state_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file_system.h"
#include "base/text.h"
#include "cli/status/status_report.h"
#include "launcher/host/run_files.h"
#include "tests/support/temp_dir.h"

namespace lockstep::cli {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

RunStatus in_phases(std::initializer_list<Phase> phases) {
  RunStatus status;
  status.state = status.membership.state = "running";
  for (const Phase phase : phases) {
    RankStatus rank;
    rank.alive = true;
    rank.member.rank = static_cast<int>(status.ranks.size());
    rank.member.progress.phase = phase;
    status.ranks.push_back(rank);
  }
  return status;
}

TEST(StateText, OfARunThatGoesOn) {
  EXPECT_EQ(state_text(in_phases({Phase::kStep, Phase::kSave})), "running");
  EXPECT_EQ(state_text(in_phases({Phase::kLoad, Phase::kStart})),
            "starting; ranks: 1 in load, 1 in start");
  RunStatus suspect = in_phases({Phase::kStep, Phase::kStep, Phase::kStep});
  suspect.ranks[1].suspect = "stopped";
  EXPECT_EQ(state_text(suspect), "running, but rank 1 is suspect: stopped");
  suspect.ranks[2].suspect = "stopped";
  EXPECT_EQ(state_text(suspect), "running, but rank 1 is suspect: stopped (and 1 more)");
}

TEST(StateText, OfAJobWithFewerNodesThanWanted_CountsThem) {
  RunStatus status = in_phases({Phase::kStep, Phase::kStep});
  status.membership.nodes = {{.name = "n1", .address = "", .first_rank = 0},
                             {.name = "n2", .address = "", .first_rank = 1},
                             {.name = "n3", .address = "", .first_rank = -1}};
  EXPECT_EQ(state_text(status), "running") << "of which it is not known how many were wanted";
  status.wanted_nodes = 3;
  EXPECT_EQ(state_text(status), "running on 2 of 3 nodes") << "one is a spare";
  status.wanted_nodes = 2;
  EXPECT_EQ(state_text(status), "running");
}

TEST(StateText, OfARunThatRecoversOrWaits) {
  RunStatus status = in_phases({Phase::kLoad, Phase::kStep, Phase::kLoad});
  status.ranks[1].alive = false;
  status.failed_since_recovery = true;
  status.last_failure = "rank 1 killed by SIGKILL at step 17";
  EXPECT_EQ(state_text(status),
            "recovering: rank 1 killed by SIGKILL at step 17; ranks: 1 gone, 2 in load");
  status.waiting_for = "1 joined, at least 2 are needed";
  status.waiting_s = 125;
  EXPECT_EQ(state_text(status), text("waiting for nodes for ", duration_text(125),
                                     ": 1 joined, at least 2 are needed"));
  RunStatus steps = in_phases({Phase::kStep});  // what it logged before it could say "recovered"
  steps.failed_since_recovery = true;
  EXPECT_EQ(state_text(steps), "running");
}

// Its ranks are shown as their generation began.
TEST(StateText, OfARunOnAnotherHostSaysNothingOfPhases) {
  RunStatus status = in_phases({Phase::kStart, Phase::kStart});
  for (RankStatus& rank : status.ranks) rank.elsewhere = true;
  EXPECT_EQ(state_text(status), "running");
  status.membership.nodes.resize(2);  // these tell each other
  EXPECT_EQ(state_text(status), "starting; ranks: 2 in start");
}

TEST(StateText, OfARunThatIsOver) {
  RunStatus status = in_phases({Phase::kStep});
  status.state = "done";
  EXPECT_EQ(state_text(status), "done");
  status.state = "stopped";
  EXPECT_THAT(state_text(status),
              HasSubstr("it has no checkpoint, so the same command starts from step 0"));
  status.checkpoint_step = 40;
  EXPECT_EQ(state_text(status),
            "stopped on request; run the same command again to resume after step 40");
  status.state = "agent_gone";
  EXPECT_THAT(state_text(status), HasSubstr("to resume after step 40"));
  status.state = "failed";
  EXPECT_EQ(state_text(status), "failed");
  status.membership.exit_status = 70;
  status.last_failure = "rank 0 exit code 70 at step 9";  // from which it had recovered
  EXPECT_EQ(state_text(status), "failed with status 70");
  status.failed_since_recovery = true;
  status.last_error = "a check failed";
  EXPECT_EQ(state_text(status),
            "failed with status 70 after rank 0 exit code 70 at step 9: a check failed");
  status.state = "unknown";
  EXPECT_THAT(state_text(status), StartsWith("unknown: "));
}

// What the launcher writes, and what becomes of it.
TEST(StateText, FollowsTheEvents) {
  const test_support::TempDir dir;
  launcher::Membership membership;
  membership.world_size = 1;
  membership.agent_pid = ::getpid();
  membership.state = "running";
  membership.workers.push_back({0, ::getpid(), dir / "page", {}});
  ASSERT_TRUE(launcher::publish_membership(posix_file_system(), dir / "workers.json", membership));
  auto page = ProgressPage::open(dir / "page").value();
  page->set_phase(3, Phase::kLoad);
  RunObserver observer(posix_file_system(), system_clock(), dir.path());
  std::string lines;
  const auto after = [&](const std::string& line) {
    lines += line + "\n";
    EXPECT_TRUE(publish_file(posix_file_system(), dir / "events.jsonl", lines));
    return state_text(observer.look().value());
  };
  EXPECT_THAT(after(R"({"event": "generation_start", "t": 1})"), StartsWith("starting; "));
  EXPECT_EQ(after(R"({"event": "failure_detected", "rank": 0, "reason": "killed", "t": 2})"),
            "recovering: rank 0 killed; ranks: 1 in load");
  const double now = static_cast<double>(system_clock().unix_ns()) * 1e-9;
  EXPECT_THAT(after(text(R"({"event": "waiting_for_nodes", "reason": "none", "t": )",
                         static_cast<int64_t>(now) - 7200, "}")),
              StartsWith(text("waiting for nodes for ", duration_text(7200).substr(0, 2))));
  EXPECT_THAT(after(R"({"event": "waiting_for_nodes", "reason": "1 are here", "t": 9e12})"),
              testing::AllOf(HasSubstr(duration_text(7200).substr(0, 2)),
                             testing::EndsWith(": 1 are here")));
  EXPECT_THAT(after(R"({"event": "generation_start", "t": 5})"), StartsWith("recovering: "));
  page->set_phase(4, Phase::kStep);
  EXPECT_EQ(after(R"({"event": "recovered", "t": 6})"), "running");
  // What an earlier launch ended with is not this one's.
  EXPECT_EQ(after(R"({"event": "failure_detected", "rank": 0, "reason": "killed", "t": 7})"),
            "running");
  after(R"({"event": "waiting_for_nodes", "t": 8})");
  after(R"({"event": "failed", "t": 9})");
  page->set_phase(4, Phase::kLoad);
  EXPECT_THAT(
      after(R"({"event": "waiting_for_nodes", "t": 9e12})"),
      StartsWith(text("waiting for nodes for ", duration_text(0), ": too few nodes have joined")));
  EXPECT_THAT(after(R"({"event": "generation_start", "t": 11})"), StartsWith("starting; "));
  page->set_phase(5, Phase::kStep);
  EXPECT_EQ(after(R"({"event": "recovered", "t": 12})"), "running");
  const auto json = status_json(observer.look().value(), true);
  EXPECT_THAT(json, HasSubstr("\"state_text\":\"running\""));
  EXPECT_THAT(status_text(observer.look().value()), HasSubstr("\nnow: running\n"));
}

TEST(StateText, OfAFirstLaunchThatWaitsForNodes) {
  const test_support::TempDir dir;
  const auto write = [&](const std::string& lines) {
    EXPECT_TRUE(publish_file(posix_file_system(), dir / "events.jsonl", lines));
  };
  const std::string waits =
      R"({"event": "waiting_for_nodes", "reason": "1 joined, at least 2 are needed", "t": 9e12})"
      "\n";
  write(waits);
  RunObserver observer(posix_file_system(), system_clock(), dir.path());
  const auto status = observer.look();
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_THAT(state_text(status.value()), testing::EndsWith("1 joined, at least 2 are needed"));
  EXPECT_THAT(status_text(status.value()), HasSubstr("no rank has started yet"));
  write(waits + R"({"event": "failed", "t": 9})");  // it gave up
  EXPECT_EQ(observer.look().error().code, Code::kNotFound);
}

}  // namespace
}  // namespace lockstep::cli
