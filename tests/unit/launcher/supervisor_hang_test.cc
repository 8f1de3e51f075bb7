// Silence, stopped processes, and sleep that is neither.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "supervisor_driver.h"

namespace lockstep::launcher::control {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Each rank at a step of its own; one of them stopped.
Tick steps(const std::vector<int64_t>& at, int stopped = -1) {
  Tick tick;
  for (size_t i = 0; i < at.size(); ++i) {
    Progress progress;
    progress.step = at[i];
    progress.phase = Phase::kStep;
    tick.samples.push_back({progress, static_cast<int>(i) == stopped});
  }
  return tick;
}

TEST(Supervisor, AHangIsAFailureOfTheRankThatIsBehind) {
  SupervisorOptions options = workers(3);
  options.hang_s = 10;
  Driver d(options);
  d.start();
  EXPECT_THAT(d.on(steps({5, 4, 5})), IsEmpty());
  EXPECT_THAT(d.wait(9.5, steps({5, 4, 5})), IsEmpty());
  EXPECT_THAT(d.wait(0.5, steps({5, 4, 5})), ElementsAre("kill"));
  EXPECT_THAT(d.exits({killed(0, SIGKILL), killed(1, SIGKILL), killed(2, SIGKILL)}),
              ElementsAre("spawn 1 x3"));
  const Incident& incident = d.supervisor.incidents()[0];
  EXPECT_EQ(incident.primary.rank, 1);
  EXPECT_DOUBLE_EQ(incident.primary.hung_s, 10);
  EXPECT_DOUBLE_EQ(incident.detect_ms, 10000);
  EXPECT_EQ(incident.consequences.size(), 2u);
  // A stopped process goes before one that is behind.
  d.on(Started{});
  d.on(steps({5, 4, 5}));
  d.wait(9.5, steps({5, 4, 5}));
  EXPECT_THAT(d.wait(0.5, steps({5, 4, 5}, 2)), ElementsAre("kill"));
  d.exits({killed(0, SIGKILL), killed(1, SIGKILL), killed(2, SIGKILL)});
  EXPECT_EQ(d.supervisor.incidents()[1].primary.rank, 2);
  EXPECT_TRUE(d.supervisor.incidents()[1].primary.stopped);
  // Its last word came later than the others'.
  d.on(Started{});
  d.on(steps({5, 5, 4}));
  EXPECT_THAT(d.wait(4, steps({5, 5, 4})), IsEmpty());
  EXPECT_THAT(d.wait(5.5, steps({5, 5, 5})), IsEmpty());
  EXPECT_THAT(d.wait(0.5, steps({5, 5, 5}, 2)), ElementsAre("kill"));
  d.exits({killed(0, SIGKILL), killed(1, SIGKILL), killed(2, SIGKILL)});
  EXPECT_EQ(d.supervisor.incidents()[2].primary.rank, 2);
}

// Long before hang_s, however far behind the others are.
TEST(Supervisor, AStoppedProcessIsAHangAfterFiveSeconds) {
  SupervisorOptions options = workers(3);
  options.hang_s = 600;
  Driver d(options);
  d.start();
  d.wait(8, steps({5, 4, 5}));  // a long step: this silence is nobody's fault
  EXPECT_THAT(d.wait(5, steps({5, 4, 5}, 2)), IsEmpty());
  EXPECT_THAT(d.wait(0.5, steps({5, 4, 5}, 2)), ElementsAre("kill"));
  d.exits({killed(0, SIGKILL), killed(1, SIGKILL), killed(2, SIGKILL)});
  const WorkerExit& primary = d.supervisor.incidents()[0].primary;
  EXPECT_EQ(primary.rank, 2);
  EXPECT_THAT(cause_text(primary), testing::StartsWith("stopped (SIGSTOP), no progress for 13"));
}

TEST(Supervisor, AShortStopChangesNothing) {
  SupervisorOptions options = workers(2);
  options.hang_s = 600;
  Driver d(options);
  d.start();
  for (int i = 0; i < 10; ++i) {
    EXPECT_THAT(d.wait(5, steps({5, 5}, 1)), IsEmpty());
    EXPECT_THAT(d.wait(0.5, steps({5, 5})), IsEmpty());
  }
  // Seen stopped at every look, and it goes on in between.
  for (int64_t step = 6; step < 20; ++step)
    EXPECT_THAT(d.wait(4, steps({step, step}, 1)), IsEmpty());
  EXPECT_THAT(d.supervisor.incidents(), IsEmpty());
}

// All processes of a job are suspended for an hour; the agent is the last to sleep and the first to
// wake.
TEST(Supervisor, ASuspendedJobWakesAndAccusesNobody) {
  SupervisorOptions options = workers(2);
  options.hang_s = 20;
  Driver d(options);
  d.start();
  Tick all_stopped = steps({5, 5});
  for (Sample& sample : all_stopped.samples) sample.stopped = true;
  d.wait(15, steps({5, 5}));
  EXPECT_THAT(d.wait(4, all_stopped), IsEmpty());
  d.now += 3600 * kSecond;
  EXPECT_THAT(d.on(all_stopped), IsEmpty());
  EXPECT_THAT(d.wait(0.5, all_stopped), IsEmpty());
  EXPECT_THAT(d.wait(0.5, steps({6, 6})), IsEmpty());
  // While it saves before a stop, too.
  d.on(StopRequested{SIGTERM});
  EXPECT_THAT(d.wait(4, d.page(6)), IsEmpty());
  d.now += 3600 * kSecond;
  EXPECT_THAT(d.on(d.page(6)), IsEmpty());
  EXPECT_THAT(d.wait(1, d.page(6)), ElementsAre("kill"));  // the grace that was left
}

TEST(Supervisor, ChangingPagesAreNoHangAndZeroTurnsItOff) {
  SupervisorOptions options = workers(2);
  options.hang_s = 10;
  Driver d(options);
  d.start();
  for (int step = 0; step < 10; ++step) EXPECT_THAT(d.wait(9.5, d.page(step)), IsEmpty());
  options.hang_s = 0;
  Driver never(options);
  never.start();
  EXPECT_THAT(never.wait(1000, steps({0, 0}, 1)), IsEmpty());
}

// Steps of 5 s: 100 s without a word are a hang; in a phase that is seen for the first time not.
TEST(Supervisor, APhaseWhosePaceIsKnownHangsSooner) {
  SupervisorOptions options = workers(2);
  options.hang_s = 600;
  Driver d(options);
  d.start();
  int64_t step = 0;
  for (; step < 12; ++step)  // two workers: more than 20 silences
    EXPECT_THAT(d.wait(5, d.page(step)), IsEmpty());
  EXPECT_THAT(d.wait(95, d.page(step - 1)), IsEmpty());
  EXPECT_THAT(d.wait(0.5, d.page(step - 1)), ElementsAre("kill"));
  d.exits({killed(0, SIGKILL), killed(1, SIGKILL)});
  d.on(Started{});  // loading: nothing is known of it
  EXPECT_THAT(d.wait(599, Tick{{Sample{}, Sample{}}}), IsEmpty());
  EXPECT_TRUE(d.supervisor.state() == State::kRunning);
}

// Whatever it and the others were doing, and however long a hang may take.
TEST(Supervisor, AStoppedProcessIsKilledFiveSecondsAfterTheStopWasAsked) {
  for (const Phase phase : {Phase::kStep, Phase::kSave}) {
    SupervisorOptions options = workers(2);
    options.grace_s = 120;
    options.hang_s = 600;
    Driver d(options);
    d.start().on(StopRequested{SIGTERM});
    Tick seen = d.page(3, phase);
    d.on(seen);
    seen.samples[1].stopped = true;
    d.on(seen);
    EXPECT_THAT(d.wait(4.5, seen), IsEmpty());
    EXPECT_THAT(d.wait(0.5, seen), ElementsAre("kill"));
    EXPECT_THAT(d.exits({killed(0, SIGKILL), killed(1, SIGKILL)}), ElementsAre("finish 75"));
  }
}

// Looks are rarer than steps: the page says which one was the first.
TEST(Supervisor, AStepThatNoLookSaw_IsTheFirstOfItsGeneration) {
  Driver d(workers(1));
  d.start();
  for (int step = 196; step <= 300; ++step) {
    d.now += kSecond / 10;
    d.tick(step);
  }
  d.on(WorkersExited{{killed(0, SIGKILL)}, d.now});
  d.on(Started{});
  Tick late = d.page(204);
  late.samples[0].progress.first_step = 201;
  d.on(late);
  late.samples[0].progress.step = 205;
  d.on(late);
  const Incident& incident = d.supervisor.incidents()[0];
  EXPECT_EQ(incident.first_step, 201);
  EXPECT_EQ(incident.redone_steps(), 99) << "of 299";
  EXPECT_NEAR(incident.redone_s(), 9.9, 1e-6);
}

TEST(Supervisor, StepsLostBeforeARecoveryThatFailed_AreLostStill) {
  Driver d(workers(1));
  d.start();
  for (const int step : {1, 2, 3}) {
    d.now += kSecond;
    d.tick(step);
  }
  d.on(WorkersExited{{killed(0, SIGKILL)}, d.now});
  d.on(Started{});
  d.tick(0, Phase::kLoad);
  d.on(WorkersExited{{killed(0, SIGKILL)}, d.now});  // before its first step
  d.on(Started{});
  d.tick(1);
  d.tick(2);
  EXPECT_EQ(d.supervisor.incidents()[0].redone_steps(), -1);
  EXPECT_EQ(d.supervisor.incidents()[1].redone_steps(), 2);
  EXPECT_NEAR(d.supervisor.incidents()[1].redone_s(), 2, 1e-6);
}

}  // namespace
}  // namespace lockstep::launcher::control
