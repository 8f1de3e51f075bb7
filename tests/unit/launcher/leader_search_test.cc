#include "launcher/control/leader_search.h"

#include <gtest/gtest.h>

namespace lockstep::launcher::control {
namespace {

constexpr NodeId kSeeker = 5, kFound = 7;

Order order_of(NodeId leader, int64_t sequence, Duty duty = Duty::kWait) {
  Order order;
  order.leader = leader;
  order.sequence = sequence;
  order.duty = duty;
  return order;
}

class LeaderSearchTest : public testing::Test {
 protected:
  const Timing timing_;
  LeaderSearch search_{kSeeker, timing_, Rule::kNone, 0};
};

TEST_F(LeaderSearchTest, AnOlderOrderOfTheSameLeaderIsNotNew) {
  EXPECT_TRUE(search_.hear(order_of(kFound, 4), 0));
  EXPECT_FALSE(search_.hear(order_of(kFound, 5), 0));
  EXPECT_FALSE(search_.is_new(order_of(kFound, 5)));
  EXPECT_TRUE(search_.is_new(order_of(kFound, 6)));
  EXPECT_TRUE(search_.is_new(order_of(kSeeker, 1)));
  EXPECT_EQ(search_.leader().id, kFound);
}

TEST_F(LeaderSearchTest, LooksAtTheStandbysInTurnAndThenAtTheRendezvous) {
  search_.know_standbys({{8, "h:8"}, {kSeeker, "h:5"}});
  EXPECT_EQ(search_.standby_number(), 1);
  int64_t now_ns = 0;
  const auto next = [&] {
    const auto found = search_.next_candidate(now_ns);
    if (found) search_.follow(*found, now_ns);
    now_ns += timing_.try_ns;
    return found;
  };
  EXPECT_EQ(next()->id, 8u);
  EXPECT_FALSE(next());  // that is this node
  EXPECT_EQ(next()->id, 0u);
  EXPECT_EQ(next()->id, 8u);
  EXPECT_FALSE(search_.next_candidate(now_ns - timing_.try_ns));  // too soon
}

TEST_F(LeaderSearchTest, ABrokenConnectionIsTriedOnceMore) {
  search_.hear(order_of(kFound, 1), 0);
  EXPECT_TRUE(search_.lose_connection(100));
  EXPECT_FALSE(search_.answered());
  EXPECT_GE(search_.silent_ns(100 + timing_.try_ns), timing_.evict_ns);
  EXPECT_FALSE(search_.lose_connection(200));
  EXPECT_TRUE(search_.next_candidate(200));
}

// A node that tries to lead again and again has been alone all that time.
TEST_F(LeaderSearchTest, TryingToLeadDoesNotMakeItLessAlone) {
  search_.hear(order_of(kFound, 1), 0);
  search_.give_up_leader();
  search_.try_to_lead("h:5");
  EXPECT_TRUE(search_.leads());
  search_.hear(order_of(kSeeker, 1), 500);
  EXPECT_EQ(search_.alone_ns(1000), 1000);
  search_.step_down(1000);
  EXPECT_FALSE(search_.leads());
  EXPECT_EQ(search_.alone_ns(2000), 2000);
  EXPECT_EQ(search_.silent_ns(2000), 1000);
  search_.try_to_lead("h:5");
  search_.hear(order_of(kSeeker, 2, Duty::kRun), 3000);  // it has succeeded
  EXPECT_EQ(search_.alone_ns(3000), 0);
}

TEST_F(LeaderSearchTest, WhatItSleptWasNobodysSilence) {
  search_.hear(order_of(kFound, 1), 0);
  search_.forgive_sleep(700);
  EXPECT_EQ(search_.silent_ns(1000), 300);
}

}  // namespace
}  // namespace lockstep::launcher::control
