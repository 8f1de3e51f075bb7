// The allocation against a Slurm that answers from a list: what is asked, and what comes out.
#include "launcher/slurm/allocation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <map>

#include "base/text.h"
#include "launcher/control/incident.h"
#include "launcher/slurm/starts.h"
#include "tests/support/eventually.h"
#include "tests/support/temp_dir.h"

namespace lockstep::launcher::slurm {
namespace {

using test_support::kPatienceMs;
using test_support::TempDir;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kRunning =
    "JobId=7 JobState=RUNNING Reason=None Requeue=1 Restarts=0 BatchFlag=1 RunTime=00:00:10 "
    "TimeLimit=00:10:00 NodeList=node[1-2] BatchHost=node1\n";
constexpr const char* kShow = "scontrol -o show job 7";
constexpr const char* kReservations = "scontrol -o show reservation";
constexpr const char* kTry = "srun --overlap --mpi=none --nodes=1 --ntasks=1 --nodelist=node1 true";

std::string with(std::string answer, const std::string& from, const std::string& to) {
  const size_t at = answer.find(from);
  LOCKSTEP_CHECK(at != std::string::npos, from);
  return answer.replace(at, from.size(), to);
}

// Sleeps at no cost; `on_sleep` is what happens meanwhile.
class SkippingClock : public Clock {
 public:
  int64_t monotonic_ns() override { return skipped_ns; }
  int64_t unix_ns() override { return skipped_ns; }
  void sleep_ns(int64_t duration_ns) override {
    skipped_ns += duration_ns;
    on_sleep();
  }
  int64_t skipped_ns = 0;
  std::function<void()> on_sleep = [] {};
};

class SlurmAllocation : public testing::Test {
 protected:
  Allocation allocation(Requeue wish = Requeue::kAuto) {
    auto run = [this](const std::vector<std::string>& command, int64_t timeout_ms) {
      EXPECT_GT(timeout_ms, 0);
      EXPECT_LE(timeout_ms, kDeadlineMs);
      std::string line;
      for (const std::string& word : command) line += (line.empty() ? "" : " ") + word;
      asked.push_back(line);
      const auto found = answers.find(line);
      return found != answers.end() ? Result<std::string>(found->second)
                                    : Result<std::string>(Error{Code::kIo, "refused: " + line});
    };
    return Allocation::find(posix_file_system(), clock, run, environment,
                            {.requeue = wish,
                             .run_folder = folder.path(),
                             .resume_command = "resume",
                             .committed_step = [this] { return step; }});
  }
  // Ends the run with `status`; what is asked after that.
  int conclude(Allocation& from, int status, std::vector<std::string> nodes = {}) {
    asked.clear();
    return from.conclude(status, nodes);
  }

  TempDir folder;
  SkippingClock clock;
  Environment environment{{"SLURM_JOB_ID", "7"},
                          {"SLURMD_NODENAME", "node2"},
                          {"SLURM_STEP_ID", "0"},
                          {"SLURM_PROCID", "0"},
                          {kNoKillVariable, "1"}};
  std::map<std::string, std::string> answers{{kShow, kRunning},
                                             {"scontrol requeue 7", ""},
                                             {"scontrol update jobid=7 Requeue=1", ""},
                                             {"scancel 7", ""},
                                             {kReservations, "No reservations in the system\n"},
                                             {kTry, ""}};
  std::vector<std::string> asked;
  int64_t step = 4;
};

TEST_F(SlurmAllocation, OutsideOfSlurmNothingIsAsked) {
  environment.clear();
  auto none = allocation();
  EXPECT_TRUE(none.begin());
  EXPECT_EQ(none.plan(), "");
  EXPECT_EQ(none.conclude(kExitResume), kExitResume);
  EXPECT_TRUE(asked.empty());
}

TEST_F(SlurmAllocation, ARequeueIsAskedForWhereTheUserAllowedIt) {
  auto job = allocation();
  EXPECT_EQ(job.policy(), Policy::kRequeueNoKill);
  EXPECT_TRUE(job.begin());
  EXPECT_EQ(conclude(job, kExitResume), kExitDone);
  EXPECT_THAT(asked, testing::ElementsAre(kShow, "scontrol requeue 7"));
  for (const int status : {kExitDone, kExitConfig, kExitBug, kExitNoProgress}) {
    EXPECT_EQ(conclude(job, status), status);
    EXPECT_THAT(asked, Not(testing::Contains("scontrol requeue 7"))) << status;
  }
}

TEST_F(SlurmAllocation, NoRequeueStaysNoRequeueUnlessForced) {
  answers[kShow] = with(kRunning, "Requeue=1", "Requeue=0");
  auto job = allocation();
  EXPECT_TRUE(job.begin());
  EXPECT_EQ(conclude(job, kExitResume), kExitResume);
  EXPECT_THAT(asked, Not(testing::Contains(HasSubstr("equeue"))));
  auto forced = allocation(Requeue::kForce);
  EXPECT_EQ(conclude(forced, kExitResume), kExitDone);
  EXPECT_THAT(asked, testing::ElementsAre(kShow, "scontrol update jobid=7 Requeue=1",
                                          "scontrol requeue 7"));
  answers[kShow] = kRunning;
  auto never = allocation(Requeue::kNever);
  EXPECT_THAT(never.plan(), HasSubstr("Slurm itself may start it again"));
  EXPECT_EQ(conclude(never, kExitResume), kExitResume);
}

TEST_F(SlurmAllocation, ACancelledJobIsNotBroughtBack) {
  auto job = allocation();
  EXPECT_TRUE(job.begin());
  answers[kShow] = with(kRunning, "RUNNING", "COMPLETING");
  EXPECT_EQ(conclude(job, kExitResume), kExitResume);
  EXPECT_THAT(asked, testing::ElementsAre(kShow));
  answers[kShow] = with(answers[kShow], "Reason=None", "Reason=TimeLimit");
  EXPECT_EQ(conclude(job, kExitResume), kExitDone);
}

TEST_F(SlurmAllocation, ThreeStartsWithoutANewStepAreTheLast) {
  for (int64_t restart = 0; restart < kMaxStarts; ++restart) {
    answers[kShow] = with(kRunning, "Restarts=0", text("Restarts=", restart));
    auto job = allocation();
    ASSERT_TRUE(job.begin());
    ASSERT_TRUE(job.begin());  // another node of the same start
    const bool last = restart == kMaxStarts - 1;
    EXPECT_EQ(conclude(job, kExitResume), last ? kExitNoProgress : kExitDone) << restart;
    EXPECT_EQ(asked.size(), last ? 1u : 2u);
  }
  auto progress = allocation();
  ++step;
  EXPECT_EQ(conclude(progress, kExitResume), kExitDone);  // committed since the start was counted
  --step;
  // Slurm's own requeue after a lost node asks nobody: the next start refuses.
  answers[kShow] = with(kRunning, "Restarts=0", "Restarts=3");
  EXPECT_FALSE(allocation().begin());
  ++step;
  answers[kShow] = with(kRunning, "Restarts=0", "Restarts=4");
  EXPECT_TRUE(allocation().begin());
  EXPECT_EQ(read_starts(posix_file_system(), folder.path()), (Starts{"7", 4, 1, 5}));
}

TEST_F(SlurmAllocation, ABatchHostThatIsGoneLeavesTheEndToUs) {
  auto job = allocation(Requeue::kNever);
  for (const int status : {kExitDone, kExitResume}) {
    EXPECT_EQ(conclude(job, status, {"node1", "node2"}), status);
    EXPECT_THAT(asked, testing::ElementsAre(kShow)) << "its agent was with us";
    EXPECT_EQ(conclude(job, status, {"node2"}), status);
    EXPECT_THAT(asked, testing::ElementsAre(kShow, kTry)) << "its agent was lost, and it lives";
  }
  answers[kShow] = with(kRunning, "node[1-2]", "node2");
  conclude(job, kExitDone);
  EXPECT_THAT(asked, testing::ElementsAre(kShow, "scancel 7")) << "Slurm took it out of the job";
  answers[kShow] = kRunning;
  answers.erase(kTry);
  clock.on_sleep = [this] { answers[kShow] = with(kRunning, "node[1-2]", "node2"); };
  EXPECT_EQ(conclude(job, kExitDone, {"node2"}), kExitDone);
  EXPECT_THAT(asked, testing::ElementsAre(kShow, kTry, kShow, "scancel 7")) << "missed later";
  environment["SLURMD_NODENAME"] = "node1";
  auto on_it = allocation(Requeue::kNever);
  conclude(on_it, kExitDone);
  EXPECT_THAT(asked, testing::ElementsAre(kShow));
}

TEST_F(SlurmAllocation, OnlyADefiniteAnswerEndsAJob) {
  auto job = allocation(Requeue::kNever);
  const auto is_left_alone = [&](const char* why) {
    clock.skipped_ns = 0;
    EXPECT_EQ(conclude(job, kExitDone, {"node2"}), kExitDone);
    EXPECT_THAT(asked, Not(testing::Contains("scancel 7"))) << why;
  };
  answers.erase(kTry);
  is_left_alone("no srun here, or the step was refused");
  EXPECT_GE(clock.skipped_ns, kNoticeMs * 1'000'000) << "longer than Slurm takes to miss a node";
  answers.erase(kShow);
  is_left_alone("slurmctld says nothing");
  clock.on_sleep = [this] { answers[kTry] = ""; };
  is_left_alone("slurmctld was slow, the host lives");
  EXPECT_EQ(clock.skipped_ns, kAskAgainMs * 1'000'000);
  answers.erase(kTry);
  clock.on_sleep = [this] { answers[kShow] = with(kRunning, "RUNNING", "COMPLETING"); };
  is_left_alone("it ends already");
  EXPECT_EQ(clock.skipped_ns, kAskAgainMs * 1'000'000);
}

TEST_F(SlurmAllocation, NodesThatWereLostAreNamedWithTheWayToKeepThemOut) {
  auto job = allocation(Requeue::kNever);
  testing::internal::CaptureStderr();
  conclude(job, kExitDone, {"node2"});
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::HasSubstr("--exclude=node1"));
  testing::internal::CaptureStderr();
  conclude(job, kExitDone, {"node1", "node2"});
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::Not(testing::HasSubstr("--exclude")));
}

TEST_F(SlurmAllocation, WithoutScontrolTheEnvironmentCounts) {
  answers.clear();
  environment.erase(kNoKillVariable);
  auto blind = allocation();
  EXPECT_EQ(blind.policy(), Policy::kNoRequeue);
  EXPECT_THAT(blind.plan(), HasSubstr("cannot ask Slurm about this job"));
  EXPECT_THAT(blind.plan(), HasSubstr("cannot tell whether the job may be requeued"));
  EXPECT_THAT(blind.plan(), HasSubstr("cannot tell whether --no-kill is set"));
  EXPECT_TRUE(blind.begin());
  EXPECT_EQ(conclude(blind, kExitResume), kExitResume);
  environment[kNoKillVariable] = environment[kRequeueVariable] = "1";
  auto told = allocation();
  EXPECT_EQ(told.policy(), Policy::kRequeueNoKill);
  EXPECT_THAT(told.plan(), Not(HasSubstr("cannot tell")));
  EXPECT_EQ(conclude(told, kExitResume), kExitResume) << "the requeue was refused";
}

TEST_F(SlurmAllocation, TheEndThatIsComingIsSeenAtTheStartAndAskedForAgain) {
  answers[kShow] = with(kRunning, "NodeList", "EndTime=2026-11-26T08:10:00 NodeList");
  auto job = allocation(Requeue::kNever);
  EXPECT_THAT(job.plan(), HasSubstr("0:09:50 left until the time limit at 2026-11-26T08:10:00"));
  answers[kReservations] =
      "ReservationName=m StartTime=1970-01-02T00:00:00 Nodes=node[2-9] Flags=MAINT\n";
  answers[kShow] = with(kRunning, "TimeLimit=00:10:00", "TimeLimit=UNLIMITED");
  EXPECT_EQ(job.ask_time_left().value()->what, "the maintenance reservation m");
}

TEST_F(SlurmAllocation, NoAnswerIsNotTheAnswerThatNothingEndsTheJob) {
  answers[kShow] = with(kRunning, "TimeLimit=00:10:00", "TimeLimit=UNLIMITED");
  auto job = allocation(Requeue::kNever);
  ASSERT_TRUE(job.ask_time_left().ok());
  EXPECT_FALSE(job.ask_time_left().value()) << "nothing ends it";
  answers.erase(kReservations);
  EXPECT_FALSE(job.ask_time_left().ok()) << "nobody says whether maintenance begins";
  answers[kReservations] = "No reservations in the system\n";
  answers[kShow] = with(kRunning, "TimeLimit=00:10:00 ", "");
  EXPECT_FALSE(job.ask_time_left().ok()) << "nobody says whether there is a limit";
  answers.erase(kShow);
  EXPECT_FALSE(job.ask_time_left().ok()) << "slurmctld does not answer";
}

TEST_F(SlurmAllocation, ABatchJobIsResumedByItsScript) {
  const auto said = [this](int status) {
    auto job = allocation(Requeue::kNever);
    testing::internal::CaptureStderr();
    conclude(job, status, {"node1", "node2"});
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(said(kExitResume), HasSubstr("checkpoint: resume")) << "a script without a name";
  answers[kShow] =
      with(kRunning, "NodeList", "Command=/runs/run.sbatch a b WorkDir=/runs NodeList");
  for (const int status : {kExitResume, kExitNoProgress, kExitBug})
    EXPECT_THAT(said(status), HasSubstr("checkpoint: cd /runs && sbatch /runs/run.sbatch a b"));
  for (const int status : {kExitDone, kExitConfig})
    EXPECT_THAT(said(status), Not(HasSubstr("to resume")));
  answers[kShow] = with(answers[kShow], "WorkDir=/runs", "WorkDir=/my runs StdErr=/x y");
  EXPECT_THAT(said(kExitResume), HasSubstr("checkpoint: cd '/my runs' && sbatch /runs/run.sbatch"));
  answers[kShow] = with(answers[kShow], "BatchFlag=1", "BatchFlag=0");
  EXPECT_THAT(said(kExitResume), HasSubstr("checkpoint: resume")) << "salloc";
}

TEST_F(SlurmAllocation, TheBatchScriptTellsOfNoKill) {
  environment.erase(kNoKillVariable);
  answers["scontrol write batch_script 7 -"] = "#!/bin/bash\n#SBATCH --no-kill\n";
  EXPECT_EQ(allocation().policy(), Policy::kRequeueNoKill);
  answers[kShow] = with(kRunning, "BatchFlag=1", "BatchFlag=0");
  EXPECT_EQ(allocation().policy(), Policy::kNone);
}

TEST(RunSlurm, AHangingProgramIsKilledAtTheDeadline) {
  const auto hung = run_slurm({"sleep", "3600"}, 100);  // the test has less
  ASSERT_FALSE(hung);
  EXPECT_EQ(hung.error().code, Code::kTimeout);
  EXPECT_EQ(run_slurm({"no-such-program-here"}, kPatienceMs).error().code, Code::kNotFound);
  EXPECT_EQ(run_slurm({"false"}, kPatienceMs).error().code, Code::kIo);
  EXPECT_EQ(run_slurm({"echo", "a", "b"}, kPatienceMs).value(), "a b\n");
}

// As where reap_orphans on another thread was faster.
TEST(RunSlurm, AnExitStatusThatNobodyKnowsIsNoSuccess) {
  const auto before = std::signal(SIGCHLD, SIG_IGN);
  const auto ended = run_slurm({"false"}, kPatienceMs);
  std::signal(SIGCHLD, before);
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error().code, Code::kIo);
  EXPECT_THAT(ended.error().message, HasSubstr("no exit status of false"));
}

TEST(RunSlurm, HowTheUserHasTimesShownDoesNotCount) {
  ASSERT_EQ(::setenv("SLURM_TIME_FORMAT", "relative", /*replace=*/1), 0);
  const auto seen = run_slurm({"env"}, kPatienceMs);
  ::unsetenv("SLURM_TIME_FORMAT");
  ASSERT_TRUE(seen);
  EXPECT_THAT(seen.value(), Not(HasSubstr("SLURM_TIME_FORMAT")));
  EXPECT_THAT(seen.value(), HasSubstr("PATH="));
}

}  // namespace
}  // namespace lockstep::launcher::slurm
