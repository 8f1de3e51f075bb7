#include "launcher/control/straggler.h"

#include <gtest/gtest.h>

namespace lockstep::launcher::control {
namespace {

TEST(Straggler, TakesHalfAsLongAgainAsTheMedianOfTheOthers) {
  EXPECT_FALSE(find_straggler({100, 140, 100}));
  const auto found = find_straggler({100, 150, 100, 0});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 1u);
  EXPECT_EQ(found->usual_us, 100);
  EXPECT_FALSE(find_straggler({0, 150}));  // of the others nothing is known
}

TEST(Straggler, FactorIsTheCallers) {
  EXPECT_FALSE(find_straggler({100, 150}, 2));
  EXPECT_TRUE(find_straggler({100, 110}, 1.05));
}

constexpr int64_t kSecondNs = 1'000'000'000;

// A job of which a step takes a second.
class SlowRankTest : public testing::Test {
 protected:
  std::optional<Straggler> step(std::vector<int64_t> slot_us, int64_t seconds = 1) {
    now_ns_ += seconds * kSecondNs;
    return slow_.look(++step_, slot_us, now_ns_);
  }
  SlowRank slow_{1.5, 60};
  int64_t step_ = 0, now_ns_ = kSecondNs;
};

TEST_F(SlowRankTest, IsFoundAfterTheTimeItMayBeSlow) {
  step({100, 100, 100});
  for (int i = 0; i < 59; ++i) EXPECT_FALSE(step({100, 100, 170})) << i;
  EXPECT_FALSE(slow_.look(step_, {100, 100, 170}, now_ns_ + kSecondNs));  // the same step
  const auto found = step({100, 110, 170});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 2u);
  EXPECT_EQ(found->usual_us, 110);
  EXPECT_FALSE(step({100, 100, 100}));  // not now, and one such step is soon made up for
  int more = 1;
  while (more < 10 && !step({100, 100, 170})) ++more;
  EXPECT_EQ(more, 4);
}

// Of two slow ones each counts for itself; the slower one is named first.
TEST_F(SlowRankTest, HasNoOtherSlowRankToHideBehind) {
  for (int i = 0; i < 59; ++i) EXPECT_FALSE(step({100, 160, i % 2 == 0 ? 150 : 170, 100, 100}));
  step({100, 160, 150, 100, 100});
  const auto found = step({100, 160, 150, 100, 100});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 1u);
}

TEST_F(SlowRankTest, IsNotWhoIsSlowInTwoStepsOfThree) {
  for (int i = 0; i < 3600; ++i) EXPECT_FALSE(step({100, i % 3 == 0 ? 100 : 400})) << i;
}

TEST_F(SlowRankTest, IsFoundWhereAFewStepsAreFast) {
  int i = 0;
  while (i < 300 && !step({100, ++i % 10 == 0 ? 100 : 170})) {
  }
  EXPECT_LT(i, 130);
}

// The job was suspended, or steps take long: it needs ten of them.
TEST_F(SlowRankTest, NeedsTenStepsHoweverLongTheyTake) {
  step({100, 100});
  for (int i = 0; i < 9; ++i) EXPECT_FALSE(step({100, 200}, 1000)) << i;
  EXPECT_TRUE(step({100, 200}, 1000));
}

TEST_F(SlowRankTest, BeginsAnewWithOtherRanks) {
  for (int i = 0; i < 100; ++i) step({100, 200});
  EXPECT_FALSE(step({100, 200, 100}));
}

TEST_F(SlowRankTest, IsNobodyWhereNothingIsKnown) {
  for (int i = 0; i < 100; ++i) {
    EXPECT_FALSE(step({0, 0}));
    EXPECT_FALSE(step({0, 500}));
  }
}

}  // namespace
}  // namespace lockstep::launcher::control
