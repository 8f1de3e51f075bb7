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

TEST(SlowRank, IsSaidOnceAfterTenStepsOnEnd) {
  SlowRank slow;
  int64_t step = 0;
  const auto look = [&](std::vector<int64_t> slot_us) { return slow.look(step++, slot_us); };
  for (int i = 0; i < 9; ++i) EXPECT_FALSE(look({100, 200}));
  EXPECT_FALSE(slow.look(step - 1, {100, 200}));  // the same step
  EXPECT_TRUE(look({100, 200}));
  EXPECT_FALSE(look({100, 200}));
  EXPECT_FALSE(look({200, 100}));  // another one: it is counted anew
  for (int i = 0; i < 8; ++i) EXPECT_FALSE(look({200, 100}));
  EXPECT_TRUE(look({200, 100}));
}

}  // namespace
}  // namespace lockstep::launcher::control
