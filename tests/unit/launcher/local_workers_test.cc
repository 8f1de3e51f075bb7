#include "launcher/control/local_workers.h"

#include <gtest/gtest.h>

#include <csignal>

namespace lockstep::launcher::control {
namespace {

WorkerExit exit_of(int rank) {
  WorkerExit exit;
  exit.rank = rank;
  exit.signal = SIGKILL;
  return exit;
}

Report report_of(const LocalWorkers& workers, int64_t now_ns) {
  Report report;
  workers.fill(report, now_ns);
  return report;
}

TEST(LocalWorkers, AreToldOnceInAGeneration) {
  LocalWorkers workers;
  EXPECT_EQ(workers.generation(), -1);
  workers.start(3, 2);
  EXPECT_TRUE(workers.spawning());
  EXPECT_TRUE(workers.tell_to_stop());
  EXPECT_FALSE(workers.tell_to_stop());
  EXPECT_TRUE(workers.tell_to_end());
  EXPECT_FALSE(workers.tell_to_end());
  workers.on(WorkersExited{{exit_of(0), exit_of(1)}, 5});
  EXPECT_EQ(workers.alive(), 0);
  workers.start(4, 1);
  EXPECT_TRUE(workers.tell_to_end());
  EXPECT_TRUE(report_of(workers, 9).exits.empty());
}

TEST(LocalWorkers, ReportsWhatIsNotConfirmed) {
  LocalWorkers workers;
  workers.start(3, 3);
  workers.on(Spawned{{11, 12, 13}});
  workers.on(WorkersExited{{exit_of(1)}, 50});
  workers.on(WorkersExited{{exit_of(0)}, 60});
  Report report = report_of(workers, 100);
  EXPECT_EQ(report.alive, 1);
  EXPECT_EQ(report.pids.size(), 3u);
  EXPECT_EQ(report.exits.size(), 2u);
  EXPECT_EQ(report.alive_ns, 50);  // since the first one was seen alive
  workers.confirm_exits(1);
  workers.confirm_exits(0);  // an older word
  report = report_of(workers, 100);
  EXPECT_EQ(report.exits_from, 1);
  ASSERT_EQ(report.exits.size(), 1u);
  EXPECT_EQ(report.exits[0].rank, 0);
  workers.confirm_exits(9);
  EXPECT_TRUE(report_of(workers, 100).exits.empty());
}

TEST(LocalWorkers, ThatCannotBeSpawnedAreNotAlive) {
  LocalWorkers workers;
  workers.start(3, 3);
  workers.on(SpawnFailed{"no program"});
  EXPECT_EQ(workers.alive(), 0);
  EXPECT_FALSE(workers.spawning());
  EXPECT_EQ(report_of(workers, 0).spawn_error, "no program");
}

}  // namespace
}  // namespace lockstep::launcher::control
