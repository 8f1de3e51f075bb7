// Phases of a step: the host's spans on the CPU, a device's own times on a device.
#include "core/device/phase_watch.h"

#include "tests/unit/core/sim_training.h"

namespace lockstep::core {
namespace {

constexpr uint64_t kWatchSeeds = 40;
constexpr double kTick = SimWorld::kTickSeconds, kExact = 1e-9;
const at::Device kWatched{kSim, 0};

// What a phase launches.
void launch(int tasks) {
  for (int i = 0; i < tasks; ++i)
    SimWorld::here().give(queue_of(*sim_device().current_stream()), {"work", [] {}});
}
void wait() { sim_device().current_stream()->synchronize(); }

TEST(PhaseWatch, OnTheCpuAPhaseIsItsSpans) {
  constexpr int64_t kNs = 2'000'000;
  PhaseWatch watch(at::kCPU);
  {
    const PhaseSpan outside(watch, StepPhase::kUpdate);
    system_clock().sleep_ns(kNs);
  }
  watch.begin_step();
  for (int i = 0; i < 2; ++i) {
    const PhaseSpan forward(watch, StepPhase::kForward);
    const PhaseSpan inside(watch, StepPhase::kGatherWait);
    system_clock().sleep_ns(kNs);
  }
  system_clock().sleep_ns(kNs);
  const StepPhases phases = watch.end_step();
  EXPECT_GE(phases[StepPhase::kForward], 2e-9 * kNs);
  EXPECT_GE(phases[StepPhase::kOther], 1e-9 * kNs);
  EXPECT_EQ(phases[StepPhase::kGatherWait], 0) << "a part of the forward";
  EXPECT_EQ(phases[StepPhase::kUpdate], 0) << "outside of the step";
  EXPECT_EQ(watch.end_step()[StepPhase::kForward], 0) << "it was given once";
}

// The host's clock would give the wait all of it where a seed puts work off.
TEST(PhaseWatch, WorkThatIsDoneUnderALaterPhaseIsThatOfThePhaseThatLaunchedIt) {
  for (uint64_t seed = 0; seed < kWatchSeeds; ++seed) {
    SimWorld world({.seed = seed});
    PhaseWatch watch(kWatched);
    watch.begin_step();
    {
      const PhaseSpan forward(watch, StepPhase::kForward, "layers.0");
      launch(7);
    }
    launch(1);
    {
      const PhaseSpan backward(watch, StepPhase::kBackward);
      launch(11);
    }
    {
      const PhaseSpan waits(watch, StepPhase::kFold);
      launch(2);
      wait();
    }
    const StepPhases phases = watch.end_step();
    EXPECT_NEAR(phases[StepPhase::kForward], 7 * kTick, kExact) << "seed " << seed;
    EXPECT_NEAR(phases[StepPhase::kBackward], 11 * kTick, kExact) << "seed " << seed;
    EXPECT_NEAR(phases[StepPhase::kFold], 2 * kTick, kExact) << "seed " << seed;
    EXPECT_NEAR(phases[StepPhase::kOther], 1 * kTick, kExact) << "seed " << seed;
    EXPECT_NEAR(phases.sum(), 21 * kTick, kExact);
  }
}

// The compute stream waits in its gather for what another stream has still to do, and only there.
TEST(PhaseWatch, AGatherHasTheTimeInWhichNothingComputes) {
  uint64_t waited = 0, hidden = 0;
  for (uint64_t seed = 0; seed < kWatchSeeds; ++seed) {
    SimWorld world({.seed = seed});
    PhaseWatch watch(kWatched);
    const auto other = sim_device().new_stream();
    watch.begin_step();
    for (int i = 0; i < 10; ++i) world.give(queue_of(*other), {"part of a gather", [] {}});
    {
      const PhaseSpan forward(watch, StepPhase::kForward);
      launch(5);
    }
    {
      const PhaseSpan gather(watch, StepPhase::kGatherWait);
      sim_device().current_stream()->wait_for(*other->record());
    }
    {
      const PhaseSpan backward(watch, StepPhase::kBackward);
      launch(3);
      wait();
    }
    const StepPhases phases = watch.end_step();
    EXPECT_NEAR(phases[StepPhase::kBackward], 3 * kTick, kExact) << "seed " << seed;
    EXPECT_GE(phases[StepPhase::kForward], 5 * kTick - kExact);
    EXPECT_LE(phases.sum(), (5 + 10 + 1 + 3) * kTick + kExact);
    waited += phases[StepPhase::kGatherWait] > 2 * kTick;
    hidden += phases[StepPhase::kForward] > 6 * kTick;
  }
  EXPECT_GT(waited, 0u);
  EXPECT_GT(hidden, 0u);
}

// Nothing waits for the update, and no time is lost or counted twice.
TEST(PhaseWatch, WhatTheDeviceHasNotReachedCountsInTheNextStep) {
  uint64_t late = 0;
  for (uint64_t seed = 0; seed < kWatchSeeds; ++seed) {
    SimWorld world({.seed = seed});
    PhaseWatch watch(kWatched);
    const auto step = [&] {
      watch.begin_step();
      {
        const PhaseSpan forward(watch, StepPhase::kForward);
        launch(4);
        wait();
      }
      {
        const PhaseSpan update(watch, StepPhase::kUpdate);
        launch(9);
      }
      return watch.end_step();
    };
    StepPhases all = step();
    EXPECT_NEAR(all[StepPhase::kForward], 4 * kTick, kExact) << "seed " << seed;
    late += all[StepPhase::kUpdate] == 0;
    {
      const PhaseSpan between(watch, StepPhase::kForward);
      launch(6);
    }
    for (int i = 0; i < 2; ++i) all.add(step());
    wait();
    all.add(watch.end_step());
    EXPECT_NEAR(all[StepPhase::kForward], 3 * 4 * kTick, kExact) << "seed " << seed;
    EXPECT_NEAR(all[StepPhase::kUpdate], 3 * 9 * kTick, kExact) << "seed " << seed;
    EXPECT_NEAR(all.sum(), 3 * 13 * kTick, kExact) << "seed " << seed;
  }
  EXPECT_GT(late, kWatchSeeds / 4);
}

// A device that failed would throw again, while the first error is on its way.
TEST(PhaseWatch, ASpanThatAnErrorEndsLeavesNoMark) {
  SimWorld world({.seed = 1});
  PhaseWatch watch(kWatched);
  watch.begin_step();
  EXPECT_THROW(
      {
        const PhaseSpan forward(watch, StepPhase::kForward);
        launch(2);
        throw std::runtime_error("out of order");
      },
      std::runtime_error);
  launch(3);
  {
    const PhaseSpan backward(watch, StepPhase::kBackward);
    wait();
  }
  const StepPhases phases = watch.end_step();
  EXPECT_NEAR(phases[StepPhase::kForward], 5 * kTick, kExact) << "it goes on";
  EXPECT_NEAR(phases[StepPhase::kOther], 0, kExact);
}

// Training leaves its marks where it computes: all that it does has whole ticks of the device.
TEST(PhaseWatch, AStepOnADeviceHasTheDevicesTimes) {
  const SimRun run{.setting = {.strategy = ShardingStrategy::kSingle, .bf16 = true}, .steps = 3};
  const Config config = run.config();
  const layout::ModelSpec spec = hf::configured_model(config, 40).value();
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    StepPhases phases;
    const auto done = on_sim({.seed = seed}, 1, [&](int rank) -> Result<void> {
      SimGroups groups(1, layout::group_sizes(config, 1, 0));
      SimTrainee trainee(run, config, spec, groups, rank);
      std::vector<std::string> lines;
      const auto trained = trainee.train(lines);
      phases = trainee.phases();
      return trained;
    });
    ASSERT_TRUE(done.ok()) << done.error().message;
    for (const StepPhase phase :
         {StepPhase::kForward, StepPhase::kBackward, StepPhase::kFold, StepPhase::kUpdate})
      EXPECT_GT(phases[phase], kTick) << name_of(phase);
    for (const double seconds : phases.seconds)
      EXPECT_NEAR(seconds / kTick, std::round(seconds / kTick), 1e-3) << "seed " << seed;
  }
}

}  // namespace
}  // namespace lockstep::core
