#include "launcher/control/generation_size.h"

#include <gtest/gtest.h>

namespace lockstep::launcher::control {
namespace {

CoordinatorOptions options_of(OnNodeLoss on_node_loss, int64_t min, int64_t max,
                              int64_t spares = 0) {
  CoordinatorOptions options;
  options.on_node_loss = on_node_loss;
  options.min_nodes = min;
  options.max_nodes = max;
  options.spares = spares;
  return options;
}

TEST(GenerationSize, TheFirstOneWaitsForMoreThanMin) {
  const auto options = options_of(OnNodeLoss::kShrink, 2, 4);
  GenerationSize size(options, 0);
  EXPECT_EQ(size.plan({.have = 1, .first = true}, 10).count, 0);
  EXPECT_FALSE(size.enough_just_came(10));
  EXPECT_EQ(size.plan({.have = 2, .first = true}, 20).count, 0);
  EXPECT_TRUE(size.enough_just_came(20));
  EXPECT_EQ(size.plan({.have = 3, .first = true}, 19 + options.last_call_ns).count, 0);
  EXPECT_EQ(size.plan({.have = 3, .first = true}, 20 + options.last_call_ns).count, 3);
  EXPECT_EQ(size.plan({.have = 4, .first = true}, 30).count, 4);  // all are there
}

TEST(GenerationSize, TheFirstOneWaitsForNoMoreThanTheAllocationHas) {
  auto options = options_of(OnNodeLoss::kShrink, 3, 4, /*spares=*/1);
  options.coming = 4;
  GenerationSize size(options, 0);
  EXPECT_EQ(size.plan({.have = 3, .first = true}, 10).count, 0);
  EXPECT_EQ(size.plan({.have = 4, .first = true}, 20).count, 3);  // and one is a spare
  options.coming = 2;  // of this allocation; min_nodes must come from several
  GenerationSize several(options, 0);
  EXPECT_EQ(several.plan({.have = 4, .first = true}, 10).count, 0);
  options.coming = 9;
  GenerationSize all(options, 0);
  EXPECT_EQ(all.plan({.have = 4, .first = true}, 10).count, 0);
  EXPECT_EQ(all.plan({.have = 5, .first = true}, 10).count, 4);
}

TEST(GenerationSize, TooFewEndTheJobInTheEnd) {
  const auto options = options_of(OnNodeLoss::kShrink, 3, 4);
  GenerationSize size(options, 0);
  const Nodes first = size.plan({.have = 2, .first = true}, options.timing.join_ns);
  EXPECT_EQ(first.count, -1);
  EXPECT_EQ(first.reason, "only 2 of 3 nodes joined");
  size.note_committed();
  EXPECT_EQ(size.plan({.have = 2, .before = 4}, 100).count, 0);
  size.forgive_sleep(50);
  EXPECT_EQ(size.plan({.have = 2, .before = 4}, 149 + options.last_call_ns).count, 0);
  EXPECT_EQ(size.plan({.have = 2, .before = 4}, 150 + options.last_call_ns).count, -1);
}

TEST(GenerationSize, ShrinksAndGrowsWithinItsLimits) {
  const auto options = options_of(OnNodeLoss::kShrink, 1, 4, /*spares=*/1);
  GenerationSize size(options, 0);
  EXPECT_EQ(size.plan({.have = 3, .before = 4}, 0).count, 3);
  EXPECT_EQ(size.plan({.have = 4, .before = 3}, 0).count, 3);  // one is kept as a spare
  EXPECT_EQ(size.plan({.have = 9, .before = 3}, 0).count, 4);
}

TEST(GenerationSize, WaitAndSpareNeedAsManyAsBefore) {
  const auto waits = options_of(OnNodeLoss::kWait, 1, 4);
  const auto spares = options_of(OnNodeLoss::kSpare, 1, 4);
  GenerationSize wait(waits, 0), spare(spares, 0);
  EXPECT_EQ(wait.plan({.have = 3, .before = 4}, waits.timing.fence_ns).count, 0);
  EXPECT_EQ(spare.plan({.have = 3, .before = 4}, spares.timing.fence_ns).count, -1);
  EXPECT_EQ(wait.plan({.have = 4, .before = 4}, 0).count, 4);
}

TEST(GenerationSize, FailEndsTheJobWhenAMemberIsLost) {
  const auto options = options_of(OnNodeLoss::kFail, 1, 4);
  GenerationSize size(options, 0);
  EXPECT_EQ(size.plan({.have = 3, .before = 4}, 0).count, 0);  // not before one is
  size.note_lost_member();
  EXPECT_EQ(size.plan({.have = 4, .before = 4}, 0).count, -1);
  size.note_committed();
  EXPECT_EQ(size.plan({.have = 4, .before = 4}, 0).count, 4);
}

TEST(GenerationSize, WithoutAQuorumItWaitsForEver) {
  const auto options = options_of(OnNodeLoss::kShrink, 1, 4);
  GenerationSize size(options, 0);
  const int64_t late_ns = 100 * options.timing.join_ns;
  EXPECT_EQ(size.plan({.have = 4, .before = 9, .lacks_quorum = true}, late_ns).count, 0);
  EXPECT_EQ(size.without_quorum_ns(late_ns), late_ns);
  size.note_quorum(late_ns - 5);
  EXPECT_EQ(size.without_quorum_ns(late_ns), 5);
}

TEST(GenerationSize, GrowsOnlyWhereRoundsBecomeFewer) {
  EXPECT_EQ(rounds(8, 3), 3);
  EXPECT_EQ(grown(/*slots=*/8, /*per_node=*/1, /*now=*/4, /*most=*/7), 4);
  EXPECT_EQ(grown(8, 1, 4, 8), 8);
  EXPECT_EQ(grown(8, 1, 2, 3), 3);
  EXPECT_EQ(grown(8, 1, 2, 7), 4) << "four nodes are as fast as seven";
  EXPECT_EQ(grown(8, 2, 1, 3), 2);
  EXPECT_EQ(next_faster(8, 1, 4), 8);
  EXPECT_EQ(next_faster(8, 2, 1), 2);
  EXPECT_EQ(next_faster(8, 1, 8), 0);
  // What grows is faster than before, and none of its nodes can be missed.
  for (int64_t slots = 1; slots <= 24; ++slots)
    for (int64_t now = 1; now <= 12; ++now)
      for (int64_t most = now; most <= 12; ++most) {
        const int64_t next = grown(slots, 2, now, most);
        EXPECT_EQ(rounds(slots, 2 * next), rounds(slots, 2 * most));
        if (next == now) continue;
        EXPECT_GT(rounds(slots, 2 * (next - 1)), rounds(slots, 2 * next));
        EXPECT_LE(next_faster(slots, 2, now), next);
      }
}

}  // namespace
}  // namespace lockstep::launcher::control
