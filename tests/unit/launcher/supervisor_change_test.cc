#include "supervisor_driver.h"

namespace lockstep::launcher::control {
namespace {

Sample at_step(int64_t step) {
  Sample sample;
  sample.progress.step = step;
  sample.progress.phase = Phase::kStep;
  return sample;
}

// [P26]
TEST(PlannedChange, APlannedChangeIsNoRestart) {
  Driver job(workers(1));
  job.on(Begin{});
  job.on(Started{});
  EXPECT_FALSE(job.supervisor.may_change()) << "no step is complete";
  job.on(Tick{{at_step(5)}});
  job.on(Tick{{at_step(6)}});
  EXPECT_TRUE(job.supervisor.may_change());
  EXPECT_EQ(job.on(ChangeAsked{}), std::vector<std::string>{"change"});
  EXPECT_FALSE(job.supervisor.may_change()) << "it was asked for";
  job.on(Nodes{2, 0, ""});
  WorkerExit exit = ended(0, kExitChanged);
  exit.progress = at_step(6).progress;
  EXPECT_EQ(job.on(WorkersExited{{exit}}), std::vector<std::string>{"spawn 1 x2"});
  EXPECT_EQ(job.supervisor.restarts_since_safe(), 0);
  EXPECT_TRUE(job.supervisor.incidents().empty());
}

// [P26]
TEST(PlannedChange, AChangeThatNobodyAskedForIsAFailure) {
  Driver job(workers(1));
  job.on(Begin{});
  job.on(Started{});
  job.on(WorkersExited{{ended(0, kExitChanged)}});
  EXPECT_EQ(job.supervisor.incidents().size(), 1u);
  EXPECT_EQ(job.supervisor.restarts_since_safe(), 1);
}

// [P26]
TEST(PlannedChange, AWorkerThatDiesAmidAPlannedChangeIsAFailure) {
  Driver job(workers(2));
  job.on(Begin{});
  job.on(Started{});
  for (const int64_t step : {5, 6}) job.on(Tick{{at_step(step), at_step(step)}});
  job.on(ChangeAsked{});
  job.on(WorkersExited{{killed(0, SIGKILL)}});
  WorkerExit other = ended(1, kExitChanged);
  job.on(WorkersExited{{other}});
  ASSERT_EQ(job.supervisor.incidents().size(), 1u);
  EXPECT_EQ(job.supervisor.incidents()[0].primary.rank, 0);
  EXPECT_EQ(job.supervisor.restarts_since_safe(), 1);
}

}  // namespace
}  // namespace lockstep::launcher::control
