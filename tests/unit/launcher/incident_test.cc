#include "launcher/control/incident.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

namespace lockstep::launcher {
namespace {

using testing::HasSubstr;

TEST(Incident, NamesCauses) {
  WorkerExit exit;
  exit.signal = SIGKILL;
  EXPECT_EQ(cause_text(exit), "killed by SIGKILL");
  EXPECT_EQ(failure_status(exit), kExitResume);
  exit.no_memory = true;
  EXPECT_EQ(cause_text(exit),
            "killed by SIGKILL (the kernel killed processes of its node because memory ran out: "
            "see `lockstep plan`)");
  EXPECT_EQ(failure_status(exit), kExitNoMemory);
  exit.no_memory = false;
  exit.signal = 0;
  exit.exit_code = 76;
  EXPECT_EQ(cause_text(exit), "exit code 76 (lost a peer)");
  exit.exit_code = 71;
  EXPECT_EQ(cause_text(exit), "exit code 71 (out of memory: see `lockstep plan`)");
  exit.exit_code = 74;
  EXPECT_EQ(cause_text(exit), "exit code 74 (disk full, or a file-size limit)");
  exit.exit_code = 3;
  EXPECT_EQ(cause_text(exit), "exit code 3");
  exit.hung_s = 12.34;
  exit.stopped = true;
  EXPECT_EQ(cause_text(exit), "stopped (SIGSTOP), no progress for 12.3 s");
  EXPECT_EQ(signal_text(SIGRTMAX + 1).find("signal "), 0u);
}

TEST(Incident, WordsOfACause_SayTheSameAgain) {
  std::vector<WorkerExit> exits(9);
  exits[0].signal = SIGKILL;
  exits[1].signal = SIGKILL;
  exits[1].no_memory = true;
  exits[2].signal = SIGKILL;
  exits[2].agent_did = AgentDid::kKilled;
  exits[3].signal = SIGRTMAX;
  exits[4].exit_code = 76;
  exits[5].exit_code = 3;
  exits[6].hung_s = 12.5;
  exits[7].hung_s = 5;
  exits[7].stopped = true;
  exits[8].node_lost = "node n2 lost: its connection has ended";
  for (const WorkerExit& exit : exits)
    EXPECT_EQ(cause_text(parse_cause(cause_text(exit))), cause_text(exit));
  EXPECT_EQ(cause_text(exits[2]), "killed by SIGKILL (its agent stopped it)");
  EXPECT_TRUE(parse_cause(cause_text(exits[1])).no_memory);
  EXPECT_EQ(parse_cause("exit code x").exit_code, kExitBug);
}

TEST(Incident, StepsThatAreComputedAgainAreSaidWithTheirTime) {
  EXPECT_EQ(redone_text(-1, -1), "");
  EXPECT_EQ(redone_text(0, 0), "no step is computed again");
  EXPECT_EQ(redone_text(1, -1), "1 step is computed again");
  EXPECT_EQ(redone_text(95, 9.04), "95 steps (about 9.0 s) are computed again");
  EXPECT_EQ(redone_text(95, 90.4), "95 steps (about 90 s) are computed again");
}

TEST(Incident, TheLastErrorOfALogIsFound) {
  EXPECT_EQ(last_error("[lockstep] now - ERROR - one\n[lockstep] now - ERROR - two - 2\nmore\n"),
            "two - 2");
  EXPECT_EQ(last_error("[lockstep] now - ERROR - cut of"), "cut of");
  EXPECT_EQ(last_error("[lockstep] now - WARNING - none\n"), "");
}

TEST(Incident, TheTableSaysWhatFailedFirstWhatFollowedAndTheCost) {
  Incident incident;
  incident.generation = 1;
  incident.world_size = 2;
  incident.primary.rank = 1;
  incident.primary.signal = SIGSEGV;
  incident.primary.progress.step = 42;
  incident.primary.progress.phase = Phase::kStep;
  incident.primary.progress.save_phase = SavePhase::kWriting;
  incident.primary.log_lines = {"last words"};
  incident.consequences.resize(1);
  incident.consequences[0].exit_code = 76;
  incident.next_world_size = 3;
  incident.detect_ms = 1;
  incident.stop_ms = 2;
  incident.respawn_ms = 3;
  incident.restore_ms = 5;
  incident.first_step_ms = 4;
  incident.first_step = 41;
  const std::string table = incident_table({incident});
  EXPECT_THAT(table, HasSubstr("generation 1, world size 2"));
  EXPECT_THAT(table, HasSubstr("rank 1 killed by SIGSEGV, at step 42, step, checkpoint writing"));
  EXPECT_THAT(table, HasSubstr("| last words"));
  EXPECT_THAT(table, HasSubstr("rank 0 exit code 76 (lost a peer)"));
  EXPECT_THAT(table, HasSubstr("respawn 3 ms, restore 5 ms, first step 4 ms: 15 ms; "
                               "world size 3, continued from step 41\n"));
  incident.done_step = 44;
  incident.step_s = 0.5;
  EXPECT_THAT(incident_table({incident}),
              HasSubstr("continued from step 41, 4 steps (about 2.0 s) are computed again\n"));
  incident.next_world_size = 0;
  incident.first_step_ms = -1;
  EXPECT_THAT(incident_table({incident}), HasSubstr("not restarted"));
  EXPECT_EQ(incident_table({}), "");
}

}  // namespace
}  // namespace lockstep::launcher
