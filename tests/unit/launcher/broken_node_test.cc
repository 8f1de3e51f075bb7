// What becomes of a node whose hardware has failed by its counters (launcher.health = "evict").
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "job_rig.h"

namespace lockstep::launcher::control {
namespace {

TEST(BrokenNode, ASpareTakesItsPlaceWhoeverItIs) {
  for (const OnNodeLoss on_loss : {OnNodeLoss::kShrink, OnNodeLoss::kSpare, OnNodeLoss::kWait})
    for (const NodeId broken : {1, 2, 3}) {
      Job job(on_loss, 1, 3, /*spares=*/1);
      if (job.parked() == broken) continue;
      job.hardware_fails(broken);
      job.pass(2);
      EXPECT_EQ(job.running(), 3) << broken;
      EXPECT_EQ(job.parked(), broken);
      EXPECT_EQ(job.leader(), 1u);
      EXPECT_EQ(job.said("health"), 1);
      EXPECT_EQ(job.said("node_barred"), 1);
    }
}

TEST(BrokenNode, ASpareThatBreaksIsNotTaken) {
  Job job(OnNodeLoss::kShrink, 1, 3, /*spares=*/1);
  const NodeId spare = job.parked();
  job.hardware_fails(spare);
  job.pass(2);
  EXPECT_EQ(job.running(), 3);
  job.worker_dies(spare == 2 ? 3 : 2);
  job.pass(2);
  EXPECT_EQ(job.parked(), spare);
  job.lose(spare == 2 ? 3 : 2);
  job.pass(2);
  EXPECT_EQ(job.running(), 2);
  EXPECT_EQ(job.parked(), spare);
}

// What has failed may do no harm; an end would.
TEST(BrokenNode, StaysWhereTheJobCouldNotGoOnWithoutIt) {
  struct Case {
    OnNodeLoss on_loss;
    int64_t min, max;
  };
  for (const Case& each : {Case{OnNodeLoss::kShrink, 1, 1}, Case{OnNodeLoss::kShrink, 3, 3},
                           Case{OnNodeLoss::kSpare, 1, 3}, Case{OnNodeLoss::kWait, 1, 3},
                           Case{OnNodeLoss::kFail, 1, 3}}) {
    Job job(each.on_loss, each.min, each.max);
    const int64_t before = job.runs(1);
    job.hardware_fails(1);
    job.pass(60);
    EXPECT_EQ(job.running(), each.max);
    EXPECT_EQ(job.runs(1), before) << "the same generation";
    EXPECT_EQ(job.said("node_barred"), 0);
    EXPECT_EQ(job.said("health"), 2) << "what was found, and that it stays: once each";
  }
}

TEST(BrokenNode, GoesWhenAnotherOneHasComeForIt) {
  Job job(OnNodeLoss::kSpare, 1, 3);
  job.hardware_fails(2);
  job.pass(3);
  ASSERT_EQ(job.said("node_barred"), 0);
  job.start();
  job.pass(3);
  EXPECT_EQ(job.running(), 3);
  EXPECT_EQ(job.parked(), 2u);
}

// [P6] Each generation needs half of the nodes of the one before it.
TEST(BrokenNode, OfManyNodesOneAfterTheOtherGoes) {
  Job job(OnNodeLoss::kSpare, 1, 3, /*spares=*/3);
  ASSERT_EQ(job.running(), 3);
  std::vector<NodeId> ran;
  for (NodeId id = 1; id <= 6; ++id)
    if (job.runs(id) >= 0) ran.push_back(id);
  for (const NodeId id : ran) job.hardware_fails(id);
  job.pass(10);
  EXPECT_EQ(job.running(), 3);
  for (const NodeId id : ran) EXPECT_EQ(job.runs(id), -1) << id;
  EXPECT_EQ(job.up(), 6u);
}

// Whoever takes over hears of all of them at once.
TEST(BrokenNode, ATakeoverKeepsAsManyAsTheNextGenerationNeeds) {
  Job job(OnNodeLoss::kShrink, 1, 4);
  job.lose(1);
  for (const NodeId id : {3, 4}) job.hardware_fails(id);
  job.pass(8);
  EXPECT_EQ(job.coordinators(), 1);
  EXPECT_EQ(job.running(), 1);
  EXPECT_GE(job.runs(2), 0);
  EXPECT_EQ(job.said("node_barred"), 2);
}

// The order to run its workers comes late.
TEST(BrokenNode, GoesOnceItsGenerationRuns) {
  Job job(OnNodeLoss::kShrink, 1, 3);
  job.move_at_commit({{3, 1}});
  job.worker_dies(2);
  job.pass_ms(400);
  job.hardware_fails(3);
  ASSERT_EQ(job.said("node_barred"), 0);
  job.move(3, 0);
  job.pass(3);
  EXPECT_EQ(job.running(), 2);
  EXPECT_EQ(job.parked(), 3u);
  job.worker_dies(2);
  job.pass(3);
  EXPECT_EQ(job.running(), 2);
  EXPECT_EQ(job.up(), 3u);
}

TEST(BrokenNode, StaysOutForALaterConnectionAndForALaterCoordinator) {
  Job job(OnNodeLoss::kShrink, 1, 5);
  job.hardware_fails(3);
  job.pass(3);
  ASSERT_EQ(job.running(), 4);
  job.break_connection(3);
  job.pass(3);
  EXPECT_EQ(job.running(), 4);
  EXPECT_EQ(job.parked(), 3u);
  job.lose(1);
  job.pass(5);
  EXPECT_NE(job.leader(), 1u);
  EXPECT_EQ(job.running(), 3);
  EXPECT_EQ(job.parked(), 3u);
}

// Workers that save for the end are not killed for that.
TEST(BrokenNode, StaysWhileTheJobStops) {
  Job job(OnNodeLoss::kShrink, 1, 3);
  job.tell(2, StopRequested{SIGTERM});
  const int64_t before = job.runs(2);
  job.hardware_fails(3);
  job.pass_ms(800);
  EXPECT_EQ(job.running(), 3);
  EXPECT_EQ(job.runs(2), before);
  EXPECT_EQ(job.said("node_barred"), 0);
}

TEST(BrokenNode, AWarningMovesNobody) {
  Job job(OnNodeLoss::kShrink, 1, 3, /*spares=*/1);
  const int64_t before = job.runs(1);
  job.tell(1, HealthSeen{"", {"it is hot"}});
  job.pass(5);
  job.tell(1, HealthSeen{"", {}});
  job.pass(5);
  EXPECT_EQ(job.runs(1), before);
  EXPECT_EQ(job.running(), 3);
  EXPECT_EQ(job.said("health"), 1);
}

}  // namespace
}  // namespace lockstep::launcher::control
