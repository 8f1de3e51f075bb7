// What --on-node-loss does when a node is lost, one that only runs workers or the one that
// coordinates.
#include "job_rig.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

namespace lockstep::launcher::control {
namespace {

using testing::HasSubstr;

TEST(OnNodeLoss, ShrinkGoesOnWithFewerDownToMin) {
  Job job(OnNodeLoss::kShrink, /*min=*/2, /*max=*/4);
  EXPECT_EQ(job.running(), 4);
  job.lose(4);
  job.pass(2);
  EXPECT_EQ(job.running(), 3);
  job.lose(2);
  job.pass(2);
  EXPECT_EQ(job.running(), 2);
  job.lose(3);
  job.pass(29);  // for one more to come
  EXPECT_EQ(job.running(), 0);
  EXPECT_EQ(job.up(), 1u);
  job.pass(5);
  job.expect_end(1, "1 nodes are left and 2 are needed");
}

// Who has lost more than half of its nodes at once cannot know what those do.
TEST(OnNodeLoss, OnlyHalfOfTheNodesOrMoreEndTheJobForAll) {
  for (const NodeId lost : {2, 3}) {
    Job job(OnNodeLoss::kShrink, /*min=*/4, /*max=*/5);
    for (NodeId id = 2; id < 2 + lost; ++id) job.lose(id);
    job.pass(1);
    job.tell(1, StopRequested{SIGTERM});
    job.pass(3);
    job.expect_end(5 - lost, "stop");
    EXPECT_EQ(job.left().back().over, lost == 2);
  }
}

TEST(OnNodeLoss, WhoTookOverAndWaitsEndsTheJobForAll) {
  Job job(OnNodeLoss::kWait, /*min=*/1, /*max=*/3);
  job.lose(1);
  job.pass(5);
  EXPECT_EQ(job.running(), 0);
  job.tell(job.leader(), StopRequested{SIGTERM});
  job.pass(3);
  job.expect_end(2, "stop");
  EXPECT_TRUE(job.left().back().over);
}

TEST(OnNodeLoss, ShrinkTakesASpareFirst) {
  Job job(OnNodeLoss::kShrink, 1, 3, /*spares=*/1);
  EXPECT_EQ(job.running(), 3);
  job.lose(job.parked() == 2 ? 3 : 2);
  job.pass(2);
  EXPECT_EQ(job.running(), 3);
  EXPECT_EQ(job.parked(), 0u);
}

TEST(OnNodeLoss, SpareGoesOnByTheParkedNodeAndEndsWithoutOne) {
  Job job(OnNodeLoss::kSpare, 1, 3, /*spares=*/1);
  EXPECT_EQ(job.running(), 3);
  job.lose(job.parked() == 2 ? 3 : 2);
  job.pass(2);
  EXPECT_EQ(job.running(), 3);
  job.lose(4);
  job.pass(5);
  job.expect_end(2, "2 nodes are left and 3 are needed; no spare node is available");
}

TEST(BarredNode, RunsNoMoreWorkersAndIsThereAlsoWhereItCoordinates) {
  for (const NodeId wrong : {1, 3}) {
    Job job(OnNodeLoss::kShrink, /*min=*/1, /*max=*/4);
    job.worker_computes_wrongly(wrong);
    job.pass(3);
    EXPECT_EQ(job.running(), 3) << wrong;
    EXPECT_EQ(job.parked(), wrong);
    EXPECT_EQ(job.leader(), 1u);
    job.worker_dies(2);
    job.pass(3);
    EXPECT_EQ(job.running(), 3) << wrong;
    EXPECT_EQ(job.parked(), wrong);
    EXPECT_EQ(job.up(), 4u);
  }
}

// Neither a connection that breaks nor another coordinator makes it any better.
TEST(BarredNode, StaysBarredForALaterConnectionAndForALaterCoordinator) {
  Job job(OnNodeLoss::kShrink, 1, 5);
  job.worker_computes_wrongly(3);
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

TEST(BarredNode, StaysBarredWhenItsAgentIsStartedAgainAlsoForALaterCoordinator) {
  Job job(OnNodeLoss::kShrink, 1, 5);
  job.worker_computes_wrongly(3);
  job.pass(3);
  ASSERT_EQ(job.running(), 4);
  job.lose(3);
  job.pass(3);
  const auto next_generation = [&] {
    job.pass(3);
    job.worker_dies(job.leader());
    job.pass(3);
  };
  const NodeId again = job.start("n3");
  next_generation();
  EXPECT_EQ(job.running(), 4);
  EXPECT_EQ(job.parked(), again);
  job.lose(again);
  job.lose(job.leader());
  job.pass(5);
  ASSERT_EQ(job.running(), 3);
  const NodeId later = job.start("n3"), sound = job.start("n9");
  next_generation();
  EXPECT_EQ(job.running(), 4);
  EXPECT_EQ(job.parked(), later);
  EXPECT_GE(job.runs(sound), 0);
}

TEST(BarredNode, ASpareTakesItsPlace) {
  Job job(OnNodeLoss::kSpare, 1, 3, /*spares=*/1);
  const NodeId spare = job.parked(), wrong = spare == 2 ? 3 : 2;
  job.worker_computes_wrongly(wrong);
  job.pass(2);
  EXPECT_EQ(job.running(), 3);
  EXPECT_EQ(job.parked(), wrong);
}

TEST(BarredNode, OfTwoNodesTheOtherOneGoesOn) {
  for (const NodeId wrong : {1, 2}) {
    Job job(OnNodeLoss::kShrink, 1, 2);
    job.worker_computes_wrongly(wrong);
    job.pass(5);
    EXPECT_EQ(job.running(), 1) << wrong;
    EXPECT_EQ(job.parked(), wrong);
  }
}

TEST(BarredNode, WhereTooFewAreLeftTheJobEndsToBeResumed) {
  Job job(OnNodeLoss::kSpare, 3, 3);
  job.worker_computes_wrongly(2);
  job.pass(40);
  EXPECT_EQ(job.running(), 0);
  job.expect_end(3, "2 nodes are left and 3 are needed; no spare node is available");
}

TEST(BarredNode, AJobOfOneNodeEnds) {
  Job job(OnNodeLoss::kShrink, 1, 1);
  job.worker_computes_wrongly(1);
  job.pass(3);
  ASSERT_EQ(job.left().size(), 1u);
  EXPECT_EQ(job.left().back().exit_status, kExitWrongBits);
  EXPECT_EQ(job.left().back().reason, "rank 0 exit code 77 (an audit found wrong bits)");
}

TEST(SlowNode, ASpareTakesItsPlaceAndItIsTheLastSpareFromThenOn) {
  for (const bool coordinates : {false, true}) {
    Job job(OnNodeLoss::kSpare, 1, 3, /*spares=*/1);
    const NodeId spare = job.parked();
    const NodeId slow = coordinates ? job.leader() : (spare == 2 ? 3 : 2);
    ASSERT_NE(spare, slow);
    job.worker_is_slow(slow, 1.7);
    job.pass(50);
    EXPECT_EQ(job.parked(), spare);
    job.pass(15);
    EXPECT_EQ(job.running(), 3);
    EXPECT_EQ(job.parked(), slow);
    EXPECT_EQ(job.leader(), 1u);
    // It is better than none.
    job.lose(spare);
    job.pass(5);
    EXPECT_EQ(job.running(), 3);
    EXPECT_GE(job.runs(slow), 0);
    job.pass(120);
    EXPECT_EQ(job.running(), 3);
  }
}

// Two slow nodes do not take turns, and who is not slow for long stays.
TEST(SlowNode, StaysWhereNoOtherSpareIsThere) {
  Job job(OnNodeLoss::kSpare, 1, 3, /*spares=*/1);
  const NodeId spare = job.parked();
  std::vector<NodeId> others;
  for (NodeId id = 1; id <= 4; ++id)
    if (id != spare) others.push_back(id);
  job.worker_is_slow(others[0], 1.7);
  job.pass(65);
  EXPECT_EQ(job.parked(), others[0]);
  job.worker_is_slow(others[1], 3);
  job.pass(200);
  EXPECT_EQ(job.parked(), others[0]);
  EXPECT_EQ(job.running(), 3);
}

TEST(SlowNode, OfAJobWithoutSparesIsOnlyNamed) {
  Job job(OnNodeLoss::kShrink, 1, 3);
  const int64_t generation = job.runs(2);
  job.worker_is_slow(2, 5);
  job.pass(200);
  EXPECT_EQ(job.running(), 3);
  EXPECT_EQ(job.runs(2), generation);
}

TEST(SlowNode, StaysWhereItIsSlowNowAndThen) {
  Job job(OnNodeLoss::kSpare, 1, 3, /*spares=*/1);
  const NodeId spare = job.parked();
  for (int minute = 0; minute < 60; ++minute) {
    job.worker_is_slow(spare == 2 ? 3 : 2, 4);
    job.pass(30);
    job.worker_is_slow(spare == 2 ? 3 : 2, 1);
    job.pass(30);
  }
  EXPECT_EQ(job.parked(), spare);
}

TEST(Folder, AWorkersEndAndALostNodeNeedNotWaitForIt) {
  Job job(OnNodeLoss::kShrink, 1, 5);
  job.folder_hangs(true);
  job.worker_dies(2);
  job.pass(1);
  EXPECT_EQ(job.running(), 5);
  job.lose(4);
  job.pass(1);
  EXPECT_EQ(job.running(), 4);
}

// Who asks in vain lets another one try, and can be stopped meanwhile.
TEST(Folder, ACoordinatorsSuccessorWaitsForIt) {
  for (const bool back : {true, false}) {
    Job job(OnNodeLoss::kShrink, 1, 5);
    job.folder_hangs(true);
    job.lose(1);
    job.pass(10);
    EXPECT_EQ(job.running(), 0);
    EXPECT_EQ(job.up(), 4u);
    if (back) job.folder_hangs(false);
    if (!back)
      for (const NodeId id : {2, 3, 4, 5}) job.tell(id, StopRequested{SIGTERM});
    job.pass(10);
    EXPECT_EQ(job.running(), back ? 4 : 0);
    if (!back) job.expect_end(4, "asked to stop while no node coordinated the job");
  }
}

TEST(Folder, WhoIsNamedThereNoMoreStepsDown) {
  Job job(OnNodeLoss::kShrink, 1, 5);
  job.tell(1, Superseded{});
  EXPECT_EQ(job.leader(), 0u);
  job.pass(8);
  EXPECT_EQ(job.running(), 5);
}

TEST(Stop, OfASpareIsItsOwnAffair) {
  Job job(OnNodeLoss::kShrink, 1, 3, /*spares=*/1);
  job.tell(job.parked(), StopRequested{SIGINT});
  job.pass(3);
  EXPECT_EQ(job.up(), 3u);
  EXPECT_EQ(job.running(), 3);
}

// Node 3 is a standby, cut off while all save because they were asked to stop.
TEST(Stop, AStandbyThatIsAloneDoesNotEndTheJob) {
  Job job(OnNodeLoss::kShrink, 1, 5);
  for (const NodeId id : {1, 2, 3, 4, 5}) job.tell(id, StopRequested{SIGUSR1});
  job.cut(3, true);
  job.pass(40);
  ASSERT_EQ(job.left().size(), 5u);
  EXPECT_EQ(job.left().back().reason, "asked to stop while no node coordinated the job");
  EXPECT_GT(job.lasted_s(), 10);
}

TEST(OnNodeLoss, ANodeWithAnotherConfigIsRefusedAndHarmsNobody) {
  Job job(OnNodeLoss::kShrink, 1, 3);
  job.lose(3);
  job.pass(1);
  job.new_ones_train(17);
  job.start();
  job.pass(1);
  EXPECT_EQ(job.up(), 2u);
  EXPECT_EQ(job.running(), 2);
  ASSERT_EQ(job.left().size(), 1u);
  EXPECT_EQ(job.left()[0].exit_status, kExitConfig);
  EXPECT_THAT(job.left()[0].reason, HasSubstr("its config differs from"));
}

// The coordinator's neighbours are not its standbys.
TEST(OnNodeLoss, ARackWithTheCoordinatorLeavesAStandby) {
  Job job(OnNodeLoss::kShrink, 1, 9);
  for (const NodeId id : {1, 2, 3, 4}) job.lose(id);
  job.pass(10);
  EXPECT_EQ(job.running(), 5);
}

TEST(OnNodeLoss, SpareIsAwaitedWhoseConnectionHasJustBroken) {
  Job job(OnNodeLoss::kSpare, 1, 3, /*spares=*/1);
  const NodeId spare = job.parked();
  job.lose(spare == 2 ? 3 : 2);
  job.pass_ms(80);
  job.cut(spare, true);
  job.break_connection(spare);
  job.pass_ms(80);  // and now the lost one counts as lost
  EXPECT_EQ(job.running(), 0);
  EXPECT_EQ(job.up(), 3u);
  job.cut(spare, false);
  job.pass(2);
  EXPECT_EQ(job.running(), 3);
}

TEST(OnNodeLoss, SpareGoesOnWhenTheCoordinatorIsLost) {
  for (const bool cut : {false, true}) {
    Job job(OnNodeLoss::kSpare, 1, 3, /*spares=*/1);
    ASSERT_EQ(job.leader(), 1u);
    cut ? job.cut(1, true) : job.lose(1);
    job.pass(5);
    EXPECT_EQ(job.running(), 3) << cut;
  }
}

TEST(OnNodeLoss, SpareEndsWhenTheCoordinatorIsLostAndNoneIsParked) {
  Job job(OnNodeLoss::kSpare);
  job.lose(1);
  job.pass(8);
  job.expect_end(2, "2 nodes are left and 3 are needed; no spare node is available");
}

// Without the coordinator, who comes finds the one that waits by the rendezvous.
TEST(OnNodeLoss, WaitGoesOnWhenAnotherNodeComes) {
  for (const NodeId lost : {3, 1}) {
    Job job(OnNodeLoss::kWait);
    job.lose(lost);
    job.pass(lost == 1 ? 60 : 300);
    EXPECT_EQ(job.running(), 0);
    EXPECT_EQ(job.up(), 2u);
    job.start();
    job.pass(3);
    EXPECT_EQ(job.running(), 3) << lost;
  }
}

TEST(OnNodeLoss, WaitGoesOnWhenTheNodeComesBack) {
  Job job(OnNodeLoss::kWait);
  job.cut(3, true);
  job.pass(10);
  EXPECT_EQ(job.running(), 0);
  job.cut(3, false);
  job.pass(3);
  EXPECT_EQ(job.running(), 3);
}

TEST(OnNodeLoss, WhoWaitsSaysSoNowAndThen) {
  Job job(OnNodeLoss::kWait);
  job.lose(3);
  job.pass(95);
  EXPECT_GE(job.said("waiting_for_nodes"), 3);
  EXPECT_LE(job.said("waiting_for_nodes"), 5);
}

TEST(OnNodeLoss, WaitEndsWhenNoNodeComes) {
  for (const NodeId lost : {3, 1}) {
    Job job(OnNodeLoss::kWait);
    job.lose(lost);
    job.pass(595);
    EXPECT_EQ(job.up(), 2u) << lost;
    job.pass(20);
    job.expect_end(2, "2 nodes are left and 3 are needed");
  }
}

// Cut off, the coordinator is not found again unless one of the two sides looks for the other.
TEST(OnNodeLoss, WaitGoesOnWhenTheCoordinatorComesBack) {
  for (const int64_t nodes : {2, 3, 4}) {
    Job job(OnNodeLoss::kWait, 1, nodes);
    ASSERT_EQ(job.running(), nodes);
    job.cut(1, true);
    job.pass(10);
    EXPECT_EQ(job.running(), 0);
    job.cut(1, false);
    job.pass(5);
    EXPECT_EQ(job.running(), nodes);
  }
}

TEST(OnNodeLoss, FailEndsTheJob) {
  for (const NodeId lost : {NodeId{1}, NodeId{3}}) {
    Job job(OnNodeLoss::kFail, 1, 3, /*spares=*/0);
    job.lose(lost);
    job.pass(8);
    job.expect_end(2, "a node was lost, and --on-node-loss is fail");
  }
}

// Neither is a worker a node, nor is one missed that ran nothing.
TEST(OnNodeLoss, FailGoesOnWithoutAWorkerOrASpare) {
  Job job(OnNodeLoss::kFail, 1, 3, /*spares=*/1);
  EXPECT_EQ(job.running(), 3);
  job.lose(job.parked());
  job.pass(2);
  EXPECT_EQ(job.running(), 3);
  job.worker_dies(job.leader());
  job.pass(2);
  EXPECT_EQ(job.running(), 3);
  EXPECT_EQ(job.up(), 3u);
}

}  // namespace
}  // namespace lockstep::launcher::control
