#include "launcher/control/formation.h"

#include <gtest/gtest.h>

#include <csignal>

namespace lockstep::launcher::control {
namespace {

constexpr NodeId kLeader = 1;

// Two nodes with two ranks each, in generation 5.
class FormationTest : public testing::Test {
 protected:
  void SetUp() override {
    first_.name = "n1";
    second_.name = "n2";
    formation_.prepare({.generation = 5, .world_size = 4, .nodes = 2}, {&first_, &second_}, "nonce",
                       100);
  }
  void promise(Node& node, int32_t alive = 0, NodeId to = kLeader) {
    Report report;
    report.promised = 5;
    report.promised_to = to;
    report.alive = alive;
    formation_.note_promise(node, report, kLeader);
  }
  void run() {
    promise(first_);
    promise(second_);
    formation_.run();
    Report report;
    report.pids = {11, 12};
    formation_.note_spawned(first_, report);
    report.pids = {21, 22};
    formation_.note_spawned(second_, report);
  }
  static Report exit_of(int rank, int64_t alive_ns = 0) {
    Report report;
    WorkerExit exit;
    exit.rank = rank;
    exit.signal = SIGKILL;
    report.exits = {exit};
    report.alive_ns = alive_ns;
    return report;
  }

  Node first_, second_;
  Formation formation_{3, Rule::kNone};
};

TEST_F(FormationTest, BeginsByGathering) {
  Formation formation(3, Rule::kNone);
  EXPECT_NE(formation.in<Gathering>(), nullptr);
  EXPECT_EQ(formation.in<Running>(), nullptr);
  formation.number_at_least(2);
  EXPECT_EQ(formation.generation(), 3);
  EXPECT_EQ(formation.per_node(), 0);
  EXPECT_EQ(formation.node_of(0), nullptr);
}

TEST_F(FormationTest, APromiseCountsFromTheRightNodeAndWithoutWorkers) {
  promise(first_, /*alive=*/1);
  promise(second_, 0, /*to=*/7);
  EXPECT_FALSE(first_.ready);
  EXPECT_FALSE(second_.ready);
  promise(first_);
  promise(first_);  // again
  EXPECT_FALSE(formation_.all_promised());
  promise(second_);
  EXPECT_TRUE(formation_.all_promised());
}

TEST_F(FormationTest, KnowsWhoHasWhichRank) {
  run();
  EXPECT_EQ(formation_.per_node(), 2);
  EXPECT_EQ(formation_.first_rank(second_), 2);
  EXPECT_EQ(formation_.node_of(1), &first_);
  EXPECT_EQ(formation_.pid_of(3), 22);
  EXPECT_EQ(formation_.pid_of(4), -1);
  EXPECT_TRUE(formation_.all_spawned());
}

TEST_F(FormationTest, AnExitIsToldOnce) {
  run();
  formation_.note_exits(second_, exit_of(2, /*alive_ns=*/30), 200);
  formation_.note_exits(second_, exit_of(2), 300);  // the same report, once more
  const WorkersExited event = formation_.take_exits();
  ASSERT_EQ(event.exits.size(), 1u);
  EXPECT_EQ(event.exits[0].rank, 2);
  EXPECT_EQ(event.alive_ns, 170);
  EXPECT_TRUE(formation_.take_exits().exits.empty());
  EXPECT_FALSE(formation_.all_ended());
}

TEST_F(FormationTest, AnExitOfAnotherNodesRankIsNotBelieved) {
  run();
  formation_.note_exits(second_, exit_of(0), 200);
  EXPECT_TRUE(formation_.take_exits().exits.empty());
}

TEST_F(FormationTest, ALostNodeEndsItsWorkers) {
  run();
  formation_.note_exits(second_, exit_of(2), 200);
  (void)formation_.take_exits();
  formation_.lose(second_, "silence");
  EXPECT_TRUE(formation_.lost_a_member());
  EXPECT_EQ(formation_.node_of(3), nullptr);
  const WorkersExited event = formation_.take_exits();
  ASSERT_EQ(event.exits.size(), 1u);  // the other one had ended before
  EXPECT_EQ(event.exits[0].rank, 3);
  EXPECT_NE(event.exits[0].node_lost.find("silence"), std::string::npos);
  EXPECT_EQ(formation_.node_name_of(3), "n2") << "an event names it still";
  EXPECT_EQ(formation_.node_name_of(4), "");
  formation_.lose(first_, "silence");
  EXPECT_TRUE(formation_.all_ended());
}

TEST_F(FormationTest, AMemberLostBeforeItRunsCountsAsSpawned) {
  promise(first_);
  promise(second_);
  formation_.run();
  formation_.lose(second_, "silence");
  Report report;
  report.pids = {11, 12};
  formation_.note_spawned(first_, report);
  EXPECT_TRUE(formation_.all_spawned());
}

}  // namespace
}  // namespace lockstep::launcher::control
