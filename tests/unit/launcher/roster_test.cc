#include "launcher/control/roster.h"

#include <gtest/gtest.h>

namespace lockstep::launcher::control {
namespace {

// What the protocol needs of its times, whatever silence is tolerated and however many nodes there
// are.
TEST(Timing, KeepsItsOrderForEverySilenceAndNumberOfNodes) {
  for (const int64_t nodes : {1, 64, 1000, 4096, 16'384})
    for (const int64_t silence_ms : {0, 500, 1500, 5000, 60'000})
      for (const int64_t ack_ms : {0, 700, 30'000}) {
        const Timing t = timing_of(nodes, {0, silence_ms * kMs, ack_ms * kMs, 0});
        const auto which = [&] { return testing::Message() << nodes << " " << silence_ms; };
        EXPECT_LT(t.report_ns, t.suspect_ns) << which();
        EXPECT_LT(t.suspect_ns, t.evict_ns) << which();
        EXPECT_LE(2 * t.evict_ns, t.fence_ns) << which() << ": the second standby comes first";
        EXPECT_LT(t.fence_ns + t.ack_ns + t.reap_ns, t.give_up_ns) << which();
        EXPECT_GE(t.ack_ns, t.suspect_ns) << which();
        EXPECT_GT(t.stop_ns, t.reap_ns) << which();
      }
}

TEST(Timing, OfFewNodesIsWhatItIsWithoutKeys) {
  const Timing plain, few = timing_of(1000);
  EXPECT_EQ(patience_of(few), patience_of(plain));
  EXPECT_EQ(few.suspect_ns, plain.suspect_ns);
  EXPECT_EQ(few.fence_ns, plain.fence_ns);
  EXPECT_EQ(few.stop_ns, plain.stop_ns);
  EXPECT_EQ(few.give_up_ns, plain.give_up_ns);
  EXPECT_EQ(few.linger_ns, plain.linger_ns);
}

// One thread hears all: 20,480 reports a second, and a millisecond for the answer of each.
TEST(Timing, OfManyNodesGrowsWithThem) {
  EXPECT_EQ(patience_of(timing_of(4096)),
            (Patience{200 * kMs, 1500 * kMs, 4096 * kMs, 10'000 * kMs}));
  EXPECT_EQ(patience_of(timing_of(16'384)),
            (Patience{800 * kMs, 6000 * kMs, 16'384 * kMs, 10'000 * kMs}));
  const Patience given{0, 3000 * kMs, 5000 * kMs, 60'000 * kMs};
  EXPECT_EQ(patience_of(timing_of(16'384, given)),
            (Patience{400 * kMs, 3000 * kMs, 5000 * kMs, 60'000 * kMs}));
}

// The last of those that start over has had time to come.
TEST(Timing, WhoStartsOverWaitsForAllThatAreLeftAndNoLonger) {
  const Timing plain, again = starting_over(plain, /*last_call_ns=*/2000 * kMs);
  EXPECT_EQ(again.join_ns, plain.give_up_ns + 2000 * kMs);
  EXPECT_LT(again.join_ns, plain.join_ns);
  EXPECT_EQ(again.give_up_ns, plain.give_up_ns);
}

constexpr NodeId kListed = 1;

Report report_of(NodeId id, int64_t sequence = 1) {
  Report report;
  report.id = id;
  report.name = std::string("n") + std::to_string(id);
  report.sequence = sequence;
  report.follows = kListed;
  return report;
}

class RosterTest : public testing::Test {
 protected:
  Node& add(NodeId id) {
    Node& node = roster_.admit(report_of(id));
    roster_.hear(node, report_of(id), 0);
    return node;
  }
  const Timing timing_;
  Roster roster_{kListed, timing_, Rule::kNone};
};

TEST_F(RosterTest, ANodeIsSuspectFirstAndLostLater) {
  add(kListed);
  const Node& node = add(2);
  EXPECT_FALSE(roster_.look_for_silence(timing_.suspect_ns - 1));
  EXPECT_TRUE(roster_.look_for_silence(timing_.suspect_ns));
  EXPECT_FALSE(roster_.look_for_silence(timing_.suspect_ns));  // it is said once
  EXPECT_TRUE(node.suspect);
  EXPECT_EQ(roster_.reason_lost(node, timing_.evict_ns - 1), "");
  EXPECT_EQ(roster_.reason_lost(node, timing_.evict_ns), "it has been silent for 1500 ms");
  EXPECT_EQ(roster_.reason_lost(*roster_.find(kListed), 10 * timing_.evict_ns), "");
  roster_.forgive_sleep(timing_.evict_ns);
  EXPECT_EQ(roster_.reason_lost(node, timing_.evict_ns), "");
}

TEST_F(RosterTest, ABrokenConnectionHasAMomentToComeBack) {
  Node& node = add(2);
  node.gone_ns = 0;
  EXPECT_FALSE(roster_.eligible(node));
  EXPECT_EQ(roster_.reason_lost(node, timing_.reset_ns - 1), "");
  EXPECT_EQ(roster_.reason_lost(node, timing_.reset_ns),
            "its connection ended (its agent or machine is gone)");
  roster_.hear(node, report_of(2, 2), timing_.reset_ns);
  EXPECT_TRUE(roster_.eligible(node));
}

TEST_F(RosterTest, WhoFollowsAnotherCoordinatorDoesNotCount) {
  Node& node = add(2);
  node.voter = true;
  EXPECT_EQ(roster_.count_eligible(), 1);
  EXPECT_EQ(roster_.count_voters(), 1u);
  Report report = report_of(2, 2);
  report.follows = 3;
  roster_.hear(node, report, 0);
  EXPECT_EQ(roster_.count_eligible(), 0);
  EXPECT_EQ(roster_.count_voters(), 0u);
}

TEST_F(RosterTest, AStruckNodeStaysUntilTheSweep) {
  Node& node = add(2);
  EXPECT_TRUE(roster_.remove(node));
  EXPECT_FALSE(roster_.remove(node));
  EXPECT_EQ(roster_.find(2), nullptr);
  EXPECT_EQ(roster_.nodes().size(), 1u);
  roster_.sweep();
  EXPECT_TRUE(roster_.nodes().empty());
}

TEST_F(RosterTest, MembersOfTheLastGenerationKeepTheirOrder) {
  for (const NodeId id : {2, 3, 4}) add(id);
  roster_.find(4)->voter = roster_.find(3)->voter = true;
  const std::vector<Node*> chosen = roster_.choose(3, {4, 9, 3});
  ASSERT_EQ(chosen.size(), 3u);
  EXPECT_EQ(chosen[0]->peer.id, 4u);
  EXPECT_EQ(chosen[1]->peer.id, 3u);
  EXPECT_EQ(chosen[2]->peer.id, 2u);
}

TEST_F(RosterTest, KnowsTheNewestPromise) {
  Report report = report_of(2, 2);
  report.promised = 7;
  Node& node = add(2);
  roster_.hear(node, report, 0);
  ++report.sequence;
  report.promised = 5;
  roster_.hear(node, report, 0);
  EXPECT_EQ(roster_.max_promised(), 7);
}

}  // namespace
}  // namespace lockstep::launcher::control
