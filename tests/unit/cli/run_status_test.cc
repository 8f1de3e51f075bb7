// What `lockstep status` finds in a run's folder, and whom it suspects.
#include "cli/status/run_status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/environment.h"
#include "base/json.h"
#include "base/text.h"
#include "checkpoint/record/suspects.h"
#include "cli/shared/run_args.h"
#include "cli/status/status_metrics.h"
#include "cli/status/status_report.h"
#include "tests/support/temp_dir.h"

namespace lockstep::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A run of `ranks` ranks in one step, all well.
RunStatus healthy(int ranks) {
  RunStatus status;
  status.state = status.membership.state = "running";
  status.step_time_s = 0.5;
  status.membership.world_size = ranks;
  for (int r = 0; r < ranks; ++r) {
    RankStatus rank;
    rank.alive = true;
    rank.age_s = 0.1;
    rank.member.rank = r;
    rank.member.progress.step = 42;
    rank.member.progress.phase = Phase::kStep;
    status.ranks.push_back(rank);
  }
  return status;
}

std::vector<std::string> suspects_of(RunStatus status) {
  find_suspects(status);
  std::vector<std::string> all;
  for (const RankStatus& rank : status.ranks) all.push_back(rank.suspect);
  return all;
}

TEST(Suspects, AHealthyRunHasNone) {
  EXPECT_THAT(suspects_of(healthy(3)), ElementsAre("", "", ""));
  RunStatus one_step_apart = healthy(2);
  one_step_apart.ranks[0].member.progress.step = 43;
  EXPECT_THAT(suspects_of(one_step_apart), ElementsAre("", ""));
}

TEST(Suspects, WhoNeedsHalfAsLongAgainForASlotIsSlow) {
  RunStatus status = healthy(3);
  const std::vector<int64_t> slot_us{400'000, 599'000, 410'000};
  for (size_t r = 0; r < 3; ++r) status.ranks[r].member.progress.slot_us = slot_us[r];
  EXPECT_THAT(suspects_of(status), ElementsAre("", "", ""));
  status.ranks[1].member.progress.slot_us = 700'000;
  EXPECT_THAT(suspects_of(status),
              ElementsAre("", "slow: 700.0 ms for a slot, the others 410.0 ms", ""));
}

TEST(Suspects, GoneStoppedAndBehindAreNamedAndTheWaitOfOthersIsNot) {
  RunStatus status = healthy(4);
  for (RankStatus& rank : status.ranks) rank.age_s = 30;  // all wait
  status.ranks[0].alive = false;
  status.ranks[1].stopped = true;
  status.ranks[2].member.progress.step = 40;
  EXPECT_THAT(suspects_of(status),
              ElementsAre(HasSubstr("gone"), HasSubstr("SIGSTOP"), HasSubstr("at step 42"), ""));
}

TEST(Suspects, OfSeveralSilentOnesTheOneSilentLongest) {
  RunStatus status = healthy(3);
  status.ranks[0].age_s = 6.0;
  status.ranks[1].age_s = 6.4;
  EXPECT_THAT(suspects_of(status), ElementsAre("", "it made no progress for 6.4 s", ""));
}

TEST(Suspects, HowLongSilenceLastsDependsOnThePhaseAndOnTheStep) {
  RunStatus status = healthy(1);
  status.ranks[0].age_s = 4.9;
  EXPECT_THAT(suspects_of(status), ElementsAre(""));
  status.ranks[0].age_s = 5.1;
  EXPECT_THAT(suspects_of(status), ElementsAre(HasSubstr("made no progress")));
  status.step_time_s = 10;
  EXPECT_THAT(suspects_of(status), ElementsAre(""));
  status.ranks[0].age_s = 31;
  EXPECT_THAT(suspects_of(status), ElementsAre(HasSubstr("made no progress")));
  status.ranks[0].member.progress.phase = Phase::kLoad;
  EXPECT_THAT(suspects_of(status), ElementsAre(""));
  status.ranks[0].age_s = 61;
  EXPECT_THAT(suspects_of(status), ElementsAre(HasSubstr("made no progress")));
}

TEST(Suspects, AFailedSaveIsSaidAndDoesNotExcuseSilence) {
  RunStatus status = healthy(2);
  status.ranks[0].member.progress.save_phase = SavePhase::kFailed;
  status.ranks[1].age_s = 9;
  EXPECT_THAT(suspects_of(status),
              ElementsAre("its last save failed", HasSubstr("made no progress")));
}

TEST(Suspects, NobodyWhenTheRunIsOver) {
  RunStatus status = healthy(1);
  status.state = "done";
  status.ranks[0].alive = false;
  EXPECT_THAT(suspects_of(status), ElementsAre(""));
}

// Rank 1 is on a node whose reports are seconds old.
TEST(Suspects, OfRanksElsewhereOnlyAsMuchIsHeldAgainstThemAsIsKnown) {
  RunStatus status = healthy(2);
  status.membership.nodes = {{"a", ""}, {"b", ""}};
  RankStatus& far = status.ranks[1];
  far.elsewhere = true;
  far.member.node = "b";
  far.age_s = 9;
  far.member.progress.step = 30;
  EXPECT_THAT(suspects_of(status), ElementsAre("", ""));
  far.member.progress.step = 27;  // 15 steps of 0.5 s: more than the age of the report explains
  EXPECT_THAT(suspects_of(status), ElementsAre("", HasSubstr("behind")));
  far.member.progress.step = 0;  // its generation is new
  EXPECT_THAT(suspects_of(status), ElementsAre("", ""));
  far.member.progress.step = 27;
  status.step_time_s = -1;  // nothing is logged yet
  EXPECT_THAT(suspects_of(status), ElementsAre("", ""));
  status.step_time_s = 0.5;
  far.member.progress.step = 42;
  far.age_s = 12;
  EXPECT_THAT(suspects_of(status), ElementsAre("", HasSubstr("made no progress")));
  status.membership.nodes[1].suspect = true;
  EXPECT_THAT(suspects_of(status), ElementsAre("", "its node b is silent"));
}

TEST(StatusMetrics, WhatIsNotKnownHasNoLine) {
  RunStatus status = healthy(2);
  status.step = 41;
  status.loss = 2.5;
  status.ranks[1].member.node = R"(a \ "b")";
  status.ranks[1].member.progress.snapshot_step = 40;
  status.ranks[1].tokens_per_s = 1234567.5;
  status.ranks[1].suspect = "stopped";
  const std::string words = status_metrics(status);
  for (const char* line :
       {"lockstep_running 1", "lockstep_step 41", "lockstep_loss 2.5", "lockstep_suspects 1",
        "# TYPE lockstep_restarts_total counter",
        "lockstep_rank_phase{rank=\"0\",phase=\"step\"} 1", "lockstep_rank_suspect{rank=\"0\"} 0",
        R"(lockstep_rank_snapshot_step{rank="1",node="a \\ \"b\""} 40)",
        R"(lockstep_rank_tokens_per_second{rank="1",node="a \\ \"b\""} 1234567.5)"})
    EXPECT_THAT(words, HasSubstr(text("\n", line, "\n"))) << line;
  EXPECT_THAT(words, testing::Not(HasSubstr("lockstep_rank_snapshot_step{rank=\"0\"")));
  EXPECT_THAT(words, testing::Not(HasSubstr("lockstep_tokens_per_second")));
  EXPECT_THAT(words, testing::Not(HasSubstr("-1")));
}

constexpr pid_t kNobody = 999999999;

// Stands where it was made, or `late_ns` later.
class LateClock : public Clock {
 public:
  int64_t monotonic_ns() override { return made_ns_ + late_ns; }
  int64_t unix_ns() override { return made_ns_ + late_ns; }
  void sleep_ns(int64_t) override {}
  int64_t late_ns = 0;

 private:
  const int64_t made_ns_ = system_clock().unix_ns();
};

class RunObserverTest : public testing::Test {
 protected:
  void publish(const launcher::Membership& membership) {
    ASSERT_TRUE(
        launcher::publish_membership(posix_file_system(), dir_ / "workers.json", membership));
  }
  void write(const char* name, const std::string& contents) {
    ASSERT_TRUE(publish_file(posix_file_system(), dir_ / name, contents));
  }
  RunStatus look(RunObserver& observer) {
    auto status = observer.look();
    EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
    return status.ok() ? std::move(status).value() : RunStatus{};
  }
  test_support::TempDir dir_;
};

TEST_F(RunObserverTest, NoRunIsAnError) {
  RunObserver observer(posix_file_system(), system_clock(), dir_.path());
  const auto status = observer.look();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, Code::kNotFound);
  EXPECT_THAT(status.error().message, testing::EndsWith("no run_args.json)"));
  for (const char* const run : {"b", "a", "training/c"}) {
    std::filesystem::create_directories(dir_ / run);
    ASSERT_TRUE(publish_file(posix_file_system(), dir_ / run / "run_args.json", "{}").ok());
  }
  EXPECT_THAT(observer.look().error().message, HasSubstr("; runs below it: a, b, training/c"));
}

TEST_F(RunObserverTest, AddsUpWhatTheFolderSays) {
  launcher::Membership membership;
  membership.generation = 3;
  membership.world_size = 3;
  membership.agent_pid = ::getpid();
  membership.state = "running";
  for (int rank = 0; rank < 3; ++rank)
    membership.workers.push_back({rank, ::getpid(), dir_ / text("page_", rank), {}});
  publish(membership);
  for (int rank = 0; rank < 3; ++rank)
    ProgressPage::open(dir_ / text("page_", rank)).value()->set_phase(12, Phase::kStep);
  LateClock clock;
  RunObserver observer(posix_file_system(), clock, dir_.path());
  const RunStatus bare = look(observer);
  EXPECT_EQ(bare.step, -1);
  EXPECT_EQ(bare.ranks[1].tokens_per_s, -1);
  EXPECT_EQ(bare.checkpoint_step, -1);

  write("run_args.json",
        R"({"config": {"training": {"steps": 500, "slots": 4}}, "transport": "gloo"})");
  const double now = static_cast<double>(clock.unix_ns()) * 1e-9;
  std::string lines;
  for (int step = 8; step <= 11; ++step)  // the first two are of an older generation
    lines += nlohmann::json{{"step", step},    {"loss", 4.0 - 0.1 * step},
                            {"tokens", 1000},  {"step_time_s", step < 10 ? 9.0 : 0.5},
                            {"world_size", 3}, {"generation", step < 10 ? 2 : 3},
                            {"t", now - 1}}
                 .dump() +
             "\n";
  write("metrics.jsonl", lines);
  write("events.jsonl",
        R"({"event": "generation_start", "generation": 1})"
        "\n"
        R"({"event": "failure_detected", "rank": 1, "reason": "killed by SIGKILL", "step": 5})"
        "\n"
        R"({"event": "generation_start", "generation": 2})"
        "\n"
        R"({"event": "failure_detected", "rank": 2, "reason": "exit code 70", "step": 9})"
        "\n"
        R"({"event": "generation_start", "generation": 3})"
        "\n");
  const RunStatus status = look(observer);
  EXPECT_EQ(status.state, "running");
  EXPECT_EQ(status.step, 11);
  EXPECT_EQ(status.planned_steps, 500);
  EXPECT_DOUBLE_EQ(status.tokens_per_s, 2000);
  EXPECT_DOUBLE_EQ(status.eta_s(), 489 * 0.5);
  EXPECT_NEAR(status.logged_age_s, 1, 1e-3);
  // Of 4 slots rank 0 computes two.
  EXPECT_DOUBLE_EQ(status.ranks[0].tokens_per_s, 1000);
  EXPECT_DOUBLE_EQ(status.ranks[2].tokens_per_s, 500);
  EXPECT_EQ(status.restarts, 2);
  EXPECT_EQ(status.last_failure, "rank 2 exit code 70 at step 9");
  EXPECT_THAT(status.notes, testing::IsEmpty());

  const std::string shown = status_text(status);
  EXPECT_THAT(shown, HasSubstr("  transport gloo\n"));
  EXPECT_THAT(shown, HasSubstr("step 11 of 500  loss 2.90000  2,000 tokens/s of all ranks, 0.5"));
  EXPECT_THAT(shown, HasSubstr("no checkpoint  restarts 2, last failure: rank 2 exit"));
  const auto json = nlohmann::json::parse(status_json(status, true));
  EXPECT_EQ(json["workers"][0]["tokens_per_s"], 1000);
  EXPECT_EQ(json["planned_steps"], 500);
  EXPECT_EQ(json["transport"], "gloo");

  membership.agent_pid = kNobody;
  publish(membership);
  const RunStatus killed = look(observer);
  EXPECT_EQ(killed.state, "agent_gone") << "its pages are here, so it was";
  EXPECT_THAT(killed.notes, ElementsAre(HasSubstr("run the same command again to resume")));
}

TEST_F(RunObserverTest, WhatTheFailedRankLoggedLastIsShown) {
  launcher::Membership membership;
  membership.state = "failed";
  membership.exit_status = 74;
  publish(membership);
  write("events.jsonl",
        R"({"event": "failure_detected", "rank": 2, "reason": "exit code 74", "step": 9, )"
        R"("error": "rank 2: no room"})");
  RunObserver observer(posix_file_system(), system_clock(), dir_.path());
  const RunStatus full = look(observer);
  EXPECT_THAT(status_text(full), HasSubstr("restarts 0, last failure: rank 2 exit code 74 at "
                                           "step 9\n  last error of that rank: rank 2: no room\n"));
  EXPECT_EQ(nlohmann::json::parse(status_json(full, true))["last_error"], "rank 2: no room");
  write("events.jsonl", R"({"event": "failure_detected", "rank": 0, "reason": "killed"})");
  EXPECT_EQ(look(observer).last_error, "") << "another failure has come since";
  EXPECT_THAT(status_text(look(observer)), testing::Not(HasSubstr("last error of that rank")));
}

TEST_F(RunObserverTest, WhatAnAuditFoundIsShown) {
  const auto folder = dir_ / "checkpoints";
  write("run_args.json",
        text(R"({"config": {"job": {"dump_folder": ")", dir_.path().string(), "\"}}}"));
  RunObserver observer(posix_file_system(), system_clock(), dir_.path());
  EXPECT_THAT(look(observer).audits, testing::IsEmpty());
  ASSERT_TRUE(posix_file_system().make_directories(folder));
  ASSERT_TRUE(checkpoint::add_suspects(posix_file_system(), folder, {4, 1, 8, {3}, {"node7"}}));
  ASSERT_TRUE(
      checkpoint::add_suspects(posix_file_system(), folder, {8, 2, 12, {0, 1}, {"n1", "n2"}}));
  const RunStatus status = look(observer);
  EXPECT_THAT(status.audits,
              ElementsAre(HasSubstr("step 8: rank 3 on node7 has wrong bits"),
                          HasSubstr("step 12: rank 0 on n1, rank 1 on n2 contradict")));
  EXPECT_THAT(status_text(status), HasSubstr("\naudit: step 8: rank 3 on node7"));
  EXPECT_EQ(nlohmann::json::parse(status_json(status, true))["audits"].size(), 2);
  EXPECT_THAT(status_metrics(status), HasSubstr("\nlockstep_audit_findings 2\n"));
  write("checkpoints/suspect.json", "{]");
  EXPECT_THAT(look(observer).notes, testing::Contains(HasSubstr("suspect.json: cannot parse")));
}

// Each launch has its generations; who types the command again restarts nothing.
TEST_F(RunObserverTest, AStopIsNoFailureAndALaunchIsNoRestart) {
  launcher::Membership membership;
  membership.generation = 4;
  membership.world_size = 1;
  membership.agent_pid = kNobody;
  membership.state = "failed";
  membership.exit_status = 75;
  membership.workers.push_back({0, kNobody, "", {}});
  publish(membership);
  const auto log_events = [this](const std::vector<std::string>& names) {
    std::string lines;
    for (const std::string& name : names) lines += nlohmann::json{{"event", name}}.dump() + "\n";
    write("events.jsonl", lines);
  };
  LateClock clock;
  RunObserver observer(posix_file_system(), clock, dir_.path());
  log_events({"generation_start", "stop_requested", "failure_detected", "stopped",
              "generation_start", "failure_detected", "generation_start", "done",
              "generation_start",  // its agent was killed
              "generation_start", "stop_requested", "failed"});
  const RunStatus stopped = look(observer);
  EXPECT_EQ(stopped.state, "stopped");
  EXPECT_TRUE(stopped.over());
  EXPECT_EQ(stopped.restarts, 1);
  EXPECT_THAT(status_text(stopped), HasSubstr("  state stopped  "));
  EXPECT_THAT(status_text(stopped), testing::Not(HasSubstr("-1")));

  log_events({"generation_start", "stop_requested", "failed", "generation_start", "failed"});
  EXPECT_EQ(look(observer).state, "failed") << "that stop was another launch's";
  membership.exit_status = 70;
  publish(membership);
  log_events({"generation_start", "stop_requested", "failure_detected", "failed"});
  EXPECT_EQ(look(observer).state, "failed");
}

TEST_F(RunObserverTest, AStepBeyondThePlanIsNotOneOfIt) {
  RunStatus status = healthy(1);
  status.step = 1360;
  status.planned_steps = 100;
  const std::string words = status_text(status);
  EXPECT_THAT(words, HasSubstr("step 1360, and the newest launch asked for 100"));
  EXPECT_THAT(words, testing::Not(HasSubstr("1360 of 100")));
}

// srun and torchrun start ranks without an agent.
TEST_F(RunObserverTest, WithoutAnAgentItSaysWhatRankZeroLogged) {
  write("run_args.json", R"({"config": {"training": {"steps": 9}}, "transport": "gloo"})");
  LateClock clock;
  RunObserver observer(posix_file_system(), clock, dir_.path());
  EXPECT_EQ(look(observer).state, "unknown") << "nothing is logged yet";
  const auto log_step = [&](int64_t step) {
    write("metrics.jsonl", nlohmann::json{{"step", step},
                                          {"tokens", 1000},
                                          {"step_time_s", 0.5},
                                          {"world_size", 2},
                                          {"generation", 1},
                                          {"t", static_cast<double>(clock.unix_ns()) * 1e-9}}
                                   .dump() +
                               "\n");
  };
  log_step(8);
  const RunStatus status = look(observer);
  EXPECT_EQ(status.state, "running");
  EXPECT_EQ(status.membership.world_size, 2);
  EXPECT_EQ(status.restarts, 0);
  EXPECT_THAT(status.notes, ElementsAre(HasSubstr("no agent watches this run")));
  EXPECT_THAT(status_text(status),
              HasSubstr("generation 1  world_size 2  state running  transport gloo\nstep 8 of 9"));
  write("metrics.json", R"({"finished": false, "steps": 8})");
  EXPECT_EQ(look(observer).state, "stopped");
  log_step(9);  // it was started again
  EXPECT_EQ(look(observer).state, "running");
  clock.late_ns = 90'000'000'000;
  EXPECT_EQ(look(observer).state, "unknown");
  write("metrics.json", R"({"finished": true, "steps": 9})");
  EXPECT_EQ(look(observer).state, "done");
}

// Another program may have written there: fields of other types count as missing.
TEST_F(RunObserverTest, ForeignLinesInTheLogsStopNothing) {
  launcher::Membership membership;
  membership.world_size = 1;
  membership.agent_pid = kNobody;
  membership.state = "running";
  publish(membership);
  write("metrics.jsonl",
        "{\"step\":\"x\",\"tokens\":[],\"step_time_s\":{},\"generation\":\"1\",\"world_size\":null,"
        "\"t\":\"now\"}\n");
  write("events.jsonl",
        "{\"event\":7}\n"
        "{\"event\":\"failure_detected\",\"rank\":\"one\",\"reason\":3,\"step\":[]}\n");
  LateClock clock;
  RunObserver observer(posix_file_system(), clock, dir_.path());
  const RunStatus status = look(observer);
  EXPECT_EQ(status.step, -1);
  EXPECT_EQ(status.last_failure, "");
}

// From a login node: no process and no page of the run is here.
TEST_F(RunObserverTest, OfAnotherHostItSaysWhatItCannotKnow) {
  launcher::Membership membership;
  membership.world_size = 1;
  membership.agent_pid = kNobody;
  membership.state = "running";
  Progress old;
  old.phase = Phase::kStep;
  old.unix_ns = 1;
  membership.workers.push_back({0, kNobody, "/nowhere/page_0", old});
  publish(membership);
  LateClock clock;
  RunObserver observer(posix_file_system(), clock, dir_.path());
  const RunStatus young = look(observer);
  EXPECT_EQ(young.state, "running");
  EXPECT_TRUE(young.ranks[0].alive);
  EXPECT_EQ(young.ranks[0].suspect, "") << "nothing newer is published by one agent alone";
  EXPECT_THAT(young.notes, ElementsAre(HasSubstr("runs on another host, so it is not visible"),
                                       HasSubstr("when this generation began")));
  clock.late_ns = 90'000'000'000;
  const RunStatus late = look(observer);
  EXPECT_EQ(late.state, "unknown");
  EXPECT_FALSE(late.over());
  EXPECT_EQ(late.ranks[0].suspect, "");
  write("metrics.jsonl", nlohmann::json{{"step", 3},
                                        {"step_time_s", 0.5},
                                        {"t", static_cast<double>(clock.unix_ns()) * 1e-9 - 30}}
                                 .dump() +
                             "\n");
  EXPECT_EQ(look(observer).state, "running");
  membership.state = "done";
  publish(membership);
  EXPECT_EQ(look(observer).state, "done");
  EXPECT_THAT(look(observer).notes, testing::IsEmpty());
}

TEST_F(RunObserverTest, OfSeveralNodesTheyShowWhoIsWhere) {
  launcher::Membership membership;
  membership.world_size = 3;
  membership.agent_pid = kNobody;
  membership.state = "running";
  for (int rank = 0; rank < 3; ++rank)
    membership.workers.push_back(
        {rank, kNobody, rank < 2 ? "/nowhere/page" : "", {}, rank < 2 ? "gpu1" : "gpu2"});
  membership.nodes = {{"gpu1", "", 0, false, true}, {"gpu2", "", 2, true}, {"gpu3", "", -1}};
  publish(membership);
  LateClock clock;
  RunObserver observer(posix_file_system(), clock, dir_.path());
  const RunStatus status = look(observer);
  EXPECT_EQ(status.state, "running");
  EXPECT_EQ(status.ranks[2].suspect, "its node gpu2 is silent");
  EXPECT_THAT(status_text(status), HasSubstr("node gpu1  ranks 0-1  coordinator\n"
                                             "node gpu2  ranks 2-2  silent\n"
                                             "node gpu3  spare\n"));
  EXPECT_THAT(status_text(status), HasSubstr("note: the agent runs on gpu1, so it is not visible"));
  const auto json = nlohmann::json::parse(status_json(status, true));
  EXPECT_EQ(json["nodes"][0]["last_rank"], 1);
  EXPECT_EQ(json["nodes"][2]["spare"], true);
  clock.late_ns = 30'000'000'000;
  EXPECT_EQ(look(observer).state, "unknown");

  membership.nodes[0].name = host_name();
  publish(membership);
  EXPECT_EQ(look(observer).state, "agent_gone");
  clock.late_ns = 0;
  const RunStatus taken_over = look(observer);
  EXPECT_EQ(taken_over.state, "unknown");
  EXPECT_THAT(taken_over.notes, ElementsAre(HasSubstr("another one may take over")));
}

}  // namespace
}  // namespace lockstep::cli
