#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>

#include "base/text.h"
#include "supervisor_driver.h"

namespace lockstep::launcher::control {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;

TEST(Supervisor, RunsToTheEnd) {
  Driver d(workers(2));
  EXPECT_EQ(d.supervisor.state(), State::kForming);
  EXPECT_THAT(d.on(Begin{}), ElementsAre("spawn 0 x2"));
  EXPECT_THAT(d.on(Started{}), IsEmpty());
  EXPECT_EQ(d.supervisor.state(), State::kRunning);
  EXPECT_THAT(d.exits({ended(1, 0)}), IsEmpty());
  EXPECT_EQ(d.supervisor.state(), State::kRunning);
  EXPECT_THAT(d.exits({ended(0, 0)}), ElementsAre("finish 0"));
  EXPECT_EQ(d.supervisor.state(), State::kDone);
  EXPECT_THAT(d.supervisor.incidents(), IsEmpty());
}

TEST(Supervisor, EmptyListTakesTheCallersNumber) {
  SupervisorOptions options;
  options.default_nproc = 7;
  EXPECT_THAT(Driver(options).on(Begin{}), ElementsAre("spawn 0 x7"));
}

TEST(Supervisor, AFailureKillsTheOthersThenRespawns) {
  Driver d(workers(3));
  d.start();
  EXPECT_THAT(d.exits({killed(1, SIGKILL)}), ElementsAre("kill"));
  EXPECT_EQ(d.supervisor.state(), State::kStopping);
  EXPECT_THAT(d.exits({killed(0, SIGKILL)}), IsEmpty());
  EXPECT_THAT(d.exits({killed(2, SIGKILL)}), ElementsAre("spawn 1 x3"));
  EXPECT_EQ(d.supervisor.state(), State::kForming);
  d.on(Started{});
  EXPECT_EQ(d.supervisor.state(), State::kRunning);
  ASSERT_EQ(d.supervisor.incidents().size(), 1u);
  EXPECT_EQ(d.supervisor.incidents()[0].primary.rank, 1);
  EXPECT_EQ(d.supervisor.incidents()[0].consequences.size(), 2u);
  EXPECT_THAT(d.records, ElementsAre("generation_start", "spawned", "failure_detected",
                                     "worker_exit", "worker_exit", "worker_exit", "stopped_all",
                                     "generation_start", "spawned"));
}

TEST(Supervisor, WorldSizesFollowTheListAndItsLastOneRepeats) {
  SupervisorOptions options;
  options.nproc_per_node = {2, 3, 1};
  options.shrink = true;
  Driver d(options);
  d.start();
  EXPECT_THAT(d.fail(), ElementsAre("spawn 1 x3"));
  d.on(Started{});
  EXPECT_THAT(d.fail(), ElementsAre("spawn 2 x1"));
  options.shrink = false;
  Driver repeats(options);
  repeats.start();
  for (int generation = 0; generation < 2; ++generation) {
    repeats.fail(generation);
    repeats.on(Started{});
  }
  EXPECT_THAT(repeats.fail(2), ElementsAre("spawn 3 x1"));
}

TEST(Supervisor, ShrinkGoesOnWithTheSurvivors) {
  SupervisorOptions options = workers(4);
  options.shrink = true;
  options.min_nproc = 2;
  Driver d(options);
  d.start();
  // Two die; one that leaves because of that has not been lost.
  EXPECT_THAT(d.exits({ended(0, 76), killed(2, SIGSEGV)}), ElementsAre("kill"));
  EXPECT_THAT(d.exits({killed(1, SIGKILL), killed(3, SIGKILL)}), ElementsAre("spawn 1 x3"));
  d.on(Started{});
  EXPECT_THAT(d.exits({killed(0, SIGKILL), killed(1, SIGKILL)}), ElementsAre("kill"));
  EXPECT_THAT(d.exits({killed(2, SIGKILL)}), ElementsAre("finish 75"));  // 1 < min_nproc
  EXPECT_THAT(d.reason, testing::HasSubstr("fewer than 2"));
  EXPECT_EQ(d.supervisor.state(), State::kFailed);
}

TEST(Supervisor, ShrinkBelowOneEnds) {
  SupervisorOptions options = workers(1);
  options.shrink = true;
  Driver d(options);
  EXPECT_THAT(d.start().fail(), ElementsAre("finish 75"));
}

TEST(Supervisor, AFullDiskEndsTheJobAndTheEventSaysWhichOne) {
  Driver d(workers(2));
  d.start();
  WorkerExit full = ended(1, kExitDiskFull);
  full.log_lines = {
      "[lockstep] 2026-11-21 10:57:03,114 - ERROR - rank 1: the save of step 4 failed",
      "[lockstep] 2026-11-21 10:57:03,115 - ERROR - rank 1: disk full: /run/x",
      "[lockstep] 2026-11-21 10:57:03,116 - INFO - rank 1: leaves"};
  EXPECT_THAT(d.exits({full}), ElementsAre("kill"));
  EXPECT_EQ(d.error, "rank 1: disk full: /run/x");
  EXPECT_THAT(d.exits({killed(0, SIGKILL)}), ElementsAre("finish 74"));
  Driver killed_later(workers(1));
  killed_later.start();
  WorkerExit last = killed(0, SIGKILL);
  last.log_lines = full.log_lines;
  killed_later.exits({last});
  EXPECT_EQ(killed_later.error, "") << "that is not why it ended";
}

TEST(Supervisor, ThreeRestartsWithoutANewCommitEndWith93) {
  SupervisorOptions options = workers(1);
  options.max_restarts = 100;
  Driver d(options);
  d.start();
  for (int restart = 1; restart <= 3; ++restart) {
    EXPECT_THAT(d.fail(8), ElementsAre(text("spawn ", restart, " x1")));
    d.on(Started{});
  }
  EXPECT_THAT(d.fail(8), ElementsAre("finish 93"));
}

TEST(Supervisor, ANewStepInTheMemoryOfAllRanksRefillsTheBudgetAsWell) {
  SupervisorOptions options = workers(1);
  options.max_restarts = 1;
  Driver d(options);
  d.start();
  for (const int64_t snapshot : {4, 6, 8}) {
    WorkerExit exit = killed(0, SIGKILL, 2);
    exit.progress.snapshot_step = snapshot;
    EXPECT_THAT(d.exits({exit}), ElementsAre(text("spawn ", snapshot / 2 - 1, " x1")));
    d.on(Started{});
  }
  EXPECT_THAT(d.fail(2), ElementsAre("finish 75"));
}

TEST(Supervisor, ANewCommitRefillsTheBudget) {
  SupervisorOptions options = workers(1);
  options.max_restarts = 1;
  Driver d(options);
  d.start();
  for (int generation = 0; generation < 10; ++generation) {
    d.tick(generation, Phase::kStep, generation);
    EXPECT_THAT(d.fail(generation), ElementsAre(text("spawn ", generation + 1, " x1")));
    d.on(Started{});
  }
  EXPECT_THAT(d.fail(9), ElementsAre("finish 75"));
  EXPECT_THAT(d.reason, testing::HasSubstr("1 restarts are used up"));
}

TEST(Supervisor, ACommitSeenOnlyInADeadWorkersPageCounts) {
  SupervisorOptions options = workers(1);
  options.max_restarts = 1;
  Driver d(options);
  d.start().fail();
  d.on(Started{});
  EXPECT_THAT(d.fail(4), ElementsAre("spawn 2 x1"));
}

TEST(Supervisor, ExitCodeContract) {
  struct Case {
    WorkerExit exit;
    int without_restarts;
    bool restarts;
  };
  for (const Case& c :
       {Case{ended(0, 64), 64, false}, Case{ended(0, 93), 93, false}, Case{ended(0, 70), 70, true},
        Case{ended(0, 71), 71, true}, Case{ended(0, 74), 74, false}, Case{ended(0, 76), 76, true},
        Case{ended(0, 1), 70, true}, Case{ended(0, 127), 70, true},
        Case{killed(0, SIGKILL), 75, true}, Case{killed(0, SIGSEGV), 70, true},
        Case{killed(0, SIGABRT), 70, true}, Case{killed(0, SIGTERM), 75, true}}) {
    const std::string finish = text("finish ", c.without_restarts);
    SupervisorOptions once = workers(1);
    once.max_restarts = 0;
    Driver alone(once);
    EXPECT_THAT(alone.start().exits({c.exit}), ElementsAre(finish)) << cause_text(c.exit);
    Driver elastic(workers(1));
    EXPECT_THAT(elastic.start().exits({c.exit}),
                ElementsAre(c.restarts ? std::string("spawn 1 x1") : finish))
        << cause_text(c.exit);
  }
}

WorkerExit killed_for_memory() {
  WorkerExit exit = killed(0, SIGKILL);
  exit.no_memory = true;
  return exit;
}

WorkerExit at_step(WorkerExit exit, int64_t step, Phase phase) {
  exit.progress.step = step;
  exit.progress.phase = phase;
  return exit;
}

TEST(Supervisor, AnExitCodeThatComesAgainAtTheSameStepEndsTheRun) {
  struct Case {
    WorkerExit first, second;
    const char* then;
  };
  for (const Case& c :
       {Case{at_step(ended(0, 70), 9, Phase::kStep), at_step(ended(0, 70), 9, Phase::kStep),
             "finish 93"},
        Case{at_step(ended(0, 71), 0, Phase::kLoad), at_step(ended(0, 71), 0, Phase::kLoad),
             "finish 71"},
        Case{at_step(killed_for_memory(), 0, Phase::kLoad),
             at_step(killed_for_memory(), 0, Phase::kLoad), "finish 71"},
        Case{at_step(killed(0, SIGKILL), 0, Phase::kLoad),
             at_step(killed_for_memory(), 0, Phase::kLoad), "spawn 2 x1"},
        // Another step or code, a phase in which a file server may have failed, a signal.
        Case{at_step(ended(0, 70), 9, Phase::kStep), at_step(ended(0, 70), 10, Phase::kStep),
             "spawn 2 x1"},
        Case{at_step(ended(0, 70), 9, Phase::kStep), at_step(ended(0, 71), 9, Phase::kStep),
             "spawn 2 x1"},
        Case{at_step(ended(0, 70), 0, Phase::kLoad), at_step(ended(0, 70), 0, Phase::kLoad),
             "spawn 2 x1"},
        Case{at_step(killed(0, SIGSEGV), 9, Phase::kStep),
             at_step(killed(0, SIGSEGV), 9, Phase::kStep), "spawn 2 x1"}}) {
    Driver d(workers(1));
    EXPECT_THAT(d.start().exits({c.first}), ElementsAre("spawn 1 x1"));
    d.on(Started{});
    EXPECT_THAT(d.exits({c.second}), ElementsAre(c.then)) << cause_text(c.second);
  }
}

// It was another failure: between the two a step was saved.
TEST(Supervisor, AnExitCodeAfterANewCommitIsANewOne) {
  Driver d(workers(1));
  d.start().exits({at_step(ended(0, 70), 9, Phase::kStep)});
  d.on(Started{});
  WorkerExit later = at_step(ended(0, 70, 8), 9, Phase::kStep);
  EXPECT_THAT(d.exits({later}), ElementsAre("spawn 2 x1"));
}

TEST(Supervisor, AWrongConfigOfOneRankStopsAll) {
  Driver d(workers(2));
  EXPECT_THAT(d.start().exits({ended(1, 64)}), ElementsAre("kill"));
  EXPECT_THAT(d.exits({killed(0, SIGKILL)}), ElementsAre("finish 64"));
}

TEST(Supervisor, LostPeersAreNotThePrimaryFailure) {
  // In one look, the witness listed first.
  Driver together(workers(3));
  together.start().exits({ended(0, 76), ended(1, 70), killed(2, SIGKILL)});
  EXPECT_EQ(together.supervisor.incidents()[0].primary.rank, 2);
  // The witness first, the culprit only after we killed everybody, by a signal that is not ours.
  Driver late(workers(3));
  late.start().exits({ended(0, 76)});
  late.exits({killed(1, SIGKILL), killed(2, SIGSEGV)});
  EXPECT_EQ(late.supervisor.incidents()[0].primary.rank, 2);
  // Nothing better is known.
  Driver alone(workers(2));
  alone.start().exits({ended(1, 76)});
  alone.exits({killed(0, SIGKILL)});
  EXPECT_EQ(alone.supervisor.incidents()[0].primary.rank, 1);
  // A worker that was done is no culprit.
  Driver done(workers(2));
  done.start().exits({ended(0, 0)});
  done.exits({ended(1, 70)});
  EXPECT_EQ(done.supervisor.incidents()[0].primary.rank, 1);
}

TEST(Supervisor, AStragglerIsNamedOnceAndIsToBeReplacedWhileItIsSlow) {
  Driver d(workers(3));
  d.start();
  int64_t number = 0;
  const auto asked = [&](int64_t slot_us) {
    Tick tick;
    for (int rank = 0; rank < 3; ++rank) {
      Progress progress;
      progress.step = number;
      progress.phase = Phase::kStep;
      progress.slot_us = rank == 2 ? slot_us : 1000;
      tick.samples.push_back({progress, false});
    }
    ++number;
    d.now += kSecond;
    return d.on(tick);
  };
  for (int i = 0; i < 40; ++i) EXPECT_THAT(asked(2000), IsEmpty());
  EXPECT_THAT(d.records, testing::Not(Contains("straggler")));
  while (number < 70) asked(2000);
  EXPECT_EQ(std::count(d.records.begin(), d.records.end(), "straggler"), 1);
  EXPECT_THAT(asked(1100), IsEmpty());
  EXPECT_THAT(asked(2000), ElementsAre("replace 2"));
  EXPECT_EQ(std::count(d.records.begin(), d.records.end(), "straggler"), 1);
}

TEST(Supervisor, AStopLetsWorkersSave) {
  Driver d(workers(2));
  EXPECT_THAT(d.start().on(StopRequested{SIGUSR1}), ElementsAre("term"));
  EXPECT_EQ(d.supervisor.state(), State::kStopping);
  d.now += kSecond;
  EXPECT_THAT(d.tick(3), IsEmpty());
  EXPECT_THAT(d.on(StopRequested{SIGTERM}), IsEmpty());  // Slurm's, after USR1
  EXPECT_THAT(d.exits({ended(0, 75)}), IsEmpty());
  EXPECT_THAT(d.exits({ended(1, 75)}), ElementsAre("finish 75"));
  EXPECT_THAT(d.supervisor.incidents(), IsEmpty());
  EXPECT_EQ(d.supervisor.state(), State::kStopped);
  EXPECT_STREQ(state_name(d.supervisor.state()), "stopped");
}

TEST(Supervisor, AStopIsCleanOnlyWhereItWasAskedForAndAllHaveSaved) {
  Driver unasked(workers(1));
  unasked.start().exits({ended(0, 75)});
  EXPECT_EQ(unasked.supervisor.state(), State::kFailed);
  Driver unsaved(workers(2));
  unsaved.start().on(StopRequested{SIGTERM});
  unsaved.exits({ended(0, 75), killed(1, SIGKILL)});
  EXPECT_EQ(unsaved.supervisor.state(), State::kFailed);
  Driver waiting(workers(1));
  waiting.on(Nodes{0, 0, ""});
  waiting.on(Begin{});
  EXPECT_THAT(waiting.on(StopRequested{SIGTERM}), ElementsAre("finish 75"));
  EXPECT_EQ(waiting.supervisor.state(), State::kStopped);
}

TEST(Supervisor, AStopThatMeetsTheEndIsDone) {
  Driver d(workers(2));
  d.start().on(StopRequested{SIGTERM});
  EXPECT_THAT(d.exits({ended(0, 0), ended(1, 0)}), ElementsAre("finish 0"));
}

TEST(Supervisor, GraceEndsWithAKill) {
  SupervisorOptions options = workers(2);
  options.grace_s = 5;
  Driver d(options);
  d.start().on(StopRequested{SIGTERM});
  d.exits({ended(0, 75)});
  EXPECT_THAT(d.wait(4.5, d.page(3)), IsEmpty());
  EXPECT_THAT(d.wait(0.5, d.page(4)), ElementsAre("kill"));
  EXPECT_THAT(d.tick(5), IsEmpty());
  EXPECT_THAT(d.records, Contains("grace_over"));
  EXPECT_THAT(d.exits({killed(1, SIGKILL)}), ElementsAre("finish 75"));
}

TEST(Supervisor, ASaveInFlightExtendsTheGrace) {
  SupervisorOptions options = workers(1);
  options.grace_s = 5;
  options.hang_s = 60;
  Driver d(options);
  d.start().on(StopRequested{SIGTERM});
  EXPECT_THAT(d.wait(50, d.page(3, Phase::kStep, -1, SavePhase::kWriting)), IsEmpty());
  EXPECT_THAT(d.wait(9.5, d.page(3, Phase::kSave)), IsEmpty());
  EXPECT_THAT(d.wait(0.5, d.page(3, Phase::kSave)), ElementsAre("kill"));
}

// A validation was under way when the stop was asked; a step follows, and then the save.
TEST(Supervisor, AValidationThatGoesOnExtendsTheGrace) {
  SupervisorOptions options = workers(2);
  options.grace_s = 5;
  options.hang_s = 60;
  Driver d(options);
  d.start().on(StopRequested{SIGTERM});
  const auto validates = [&](int64_t slot) {
    Tick tick = d.page(3, Phase::kEval);
    for (Sample& sample : tick.samples) sample.progress.unix_ns = slot;
    return tick;
  };
  for (int64_t slot = 1; slot <= 10; ++slot) EXPECT_THAT(d.wait(4, validates(slot)), IsEmpty());
  EXPECT_THAT(d.wait(4.5, d.page(4)), IsEmpty());
  EXPECT_THAT(d.wait(1, d.page(4, Phase::kSave)), IsEmpty());
  // Until hang_s have passed since the stop.
  Driver long_one(options);
  long_one.start().on(StopRequested{SIGTERM});
  for (int64_t slot = 1; slot < 15; ++slot)
    EXPECT_THAT(long_one.wait(4, validates(slot)), IsEmpty());
  EXPECT_THAT(long_one.wait(4, validates(15)), ElementsAre("kill"));
}

TEST(Supervisor, ALoadOrAValidationThatIsSilentDoesNot) {
  for (const Phase phase : {Phase::kLoad, Phase::kWarmup, Phase::kEval}) {
    SupervisorOptions options = workers(1);
    options.grace_s = 5;
    options.hang_s = 60;
    Driver d(options);
    d.start().wait(3, d.page(0, phase));
    d.on(StopRequested{SIGTERM});
    // Until its silence is as long as the grace, and then the grace.
    EXPECT_THAT(d.wait(6.5, d.page(0, phase)), IsEmpty());
    EXPECT_THAT(d.wait(0.5, d.page(0, phase)), ElementsAre("kill"));
  }
}

TEST(Supervisor, ASecondInterruptKillsAtOnce) {
  Driver d(workers(1));
  d.start().on(StopRequested{SIGINT});
  EXPECT_THAT(d.on(StopRequested{SIGINT}), IsEmpty());  // the same one, by another way
  d.wait(1, {});
  EXPECT_THAT(d.on(StopRequested{SIGINT}), ElementsAre("kill"));
  EXPECT_THAT(d.on(StopRequested{SIGINT}), IsEmpty());
  EXPECT_THAT(d.exits({killed(0, SIGKILL)}), ElementsAre("finish 75"));
}

TEST(Supervisor, AFailureDuringAStopIsNotRestarted) {
  Driver d(workers(3));
  d.start().on(StopRequested{SIGTERM});
  EXPECT_THAT(d.exits({killed(1, SIGSEGV)}), ElementsAre("kill"));
  EXPECT_THAT(d.exits({killed(0, SIGKILL), killed(2, SIGKILL)}), ElementsAre("finish 75"));
  Driver config(workers(1));
  config.start().on(StopRequested{SIGTERM});
  EXPECT_THAT(config.exits({ended(0, 64)}), ElementsAre("finish 64"));
}

TEST(Supervisor, AStopDuringAFailureEndsAfterTheReaping) {
  Driver d(workers(2));
  d.start().exits({killed(0, SIGKILL)});
  EXPECT_THAT(d.on(StopRequested{SIGTERM}), IsEmpty());
  EXPECT_THAT(d.exits({killed(1, SIGKILL)}), ElementsAre("finish 75"));
}

TEST(Supervisor, AWorkerThatWantsToResumeStopsTheOthersGently) {
  Driver d(workers(3));
  EXPECT_THAT(d.start().exits({ended(1, 75)}), ElementsAre("term"));
  EXPECT_THAT(d.exits({ended(0, 75), ended(2, 75)}), ElementsAre("finish 75"));
}

TEST(Supervisor, AStopWhileForming) {
  Driver d(workers(1));
  d.on(Begin{});
  EXPECT_THAT(d.on(StopRequested{SIGTERM}), IsEmpty());
  EXPECT_THAT(d.on(Started{}), ElementsAre("term"));
  EXPECT_EQ(d.supervisor.state(), State::kStopping);
}

TEST(Supervisor, WorkersThatCannotStartEndTheRun) {
  Driver d(workers(2));
  d.on(Begin{});
  EXPECT_THAT(d.on(SpawnFailed{"no such file"}), ElementsAre("finish 70"));
  EXPECT_THAT(d.reason, testing::HasSubstr("no such file"));
}

TEST(Supervisor, FirstStepAfterARestartClosesTheRecovery) {
  Driver d(workers(1));
  d.start();
  d.tick(4);
  d.tick(5);
  EXPECT_THAT(d.records, Contains("first_step"));
  EXPECT_THAT(d.records, testing::Not(Contains("recovered")));
  const int64_t alive = d.now;
  d.now += 2'000'000;
  d.on(WorkersExited{{killed(0, SIGKILL)}, alive});
  d.now += 3'000'000;
  d.on(Started{});
  d.now += 50'000'000;
  d.tick(0, Phase::kLoad);
  d.tick(4);  // redone: it begins
  EXPECT_THAT(d.records, testing::Not(Contains("recovered")));
  d.now += 50'000'000;
  d.tick(4, Phase::kUpdate);
  EXPECT_THAT(d.records, testing::Not(Contains("recovered")));
  d.tick(5);
  EXPECT_THAT(d.records, Contains("recovered"));
  const Incident& incident = d.supervisor.incidents()[0];
  EXPECT_DOUBLE_EQ(incident.detect_ms, 2);
  EXPECT_DOUBLE_EQ(incident.stop_ms, 0);
  EXPECT_DOUBLE_EQ(incident.respawn_ms, 3);
  EXPECT_DOUBLE_EQ(incident.restore_ms, 50);
  EXPECT_DOUBLE_EQ(incident.first_step_ms, 50);
  EXPECT_EQ(incident.first_step, 4);
  EXPECT_EQ(incident.redone_steps(), 1);
}

}  // namespace
}  // namespace lockstep::launcher::control
