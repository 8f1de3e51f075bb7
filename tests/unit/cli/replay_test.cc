#include "cli/replay/replay_difference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::cli {
namespace {

using testing::HasSubstr;

ReplayedStep sound() { return {"0x1p+0", "0x1p-1", {"a", "b", "c"}, {"d", "e", "f"}}; }

struct Runs {
  ReplayedRun logged{{"embedding", "layers.0", "head"}, {}}, replayed;
  Runs() {
    for (int64_t step = 1; step <= 6; ++step) logged.steps[step] = sound();
    replayed = logged;
  }
  std::string difference(int64_t from = 2, int64_t to = 5) const {
    return first_difference(logged, replayed, from, to).value().value_or("equal");
  }
};

TEST(ReplayDifference, EqualStepsAreEqual) {
  Runs runs;
  runs.replayed.steps[1].loss = runs.replayed.steps[6].loss = "other";  // not asked for
  EXPECT_EQ(runs.difference(), "equal");
}

TEST(ReplayDifference, TheFirstStepIsNamed) {
  Runs runs;
  runs.replayed.steps[5].loss = "0x1p+9";
  runs.replayed.steps[4].gradients[1] = "x";
  EXPECT_THAT(runs.difference(), HasSubstr("step 4: the gradients of 1 of 3 units (layers.0) "));
}

TEST(ReplayDifference, WeightsComeBeforeTheirGradients) {
  Runs runs;
  runs.replayed.steps[3] = {"l", "g", {"a", "b", "x"}, {"x", "y", "z"}};
  EXPECT_THAT(runs.difference(), HasSubstr("step 3: the weights of 1 of 3 units (head) differ, and "
                                           "step 2 had equal weights and gradients"));
  EXPECT_THAT(runs.difference(3), HasSubstr("other weights than its checkpoint"));
}

TEST(ReplayDifference, WithoutDigestsLossAndNormDecide) {
  Runs runs;
  for (auto& [step, each] : runs.logged.steps) each.weights = each.gradients = {};
  EXPECT_EQ(runs.difference(), "equal");
  runs.replayed.steps[3].grad_norm = "0x1p+3";
  EXPECT_THAT(runs.difference(), HasSubstr("step 3 differs: loss 0x1p+0 was logged"));
  EXPECT_THAT(runs.difference(), HasSubstr("no unit is named"));
}

TEST(ReplayDifference, AStepThatIsNotThereIsAnError) {
  Runs runs;
  runs.logged.steps.erase(4);
  const auto difference = first_difference(runs.logged, runs.replayed, 2, 5);
  ASSERT_FALSE(difference.ok());
  EXPECT_EQ(difference.error().code, Code::kConfig);
  EXPECT_THAT(difference.error().message, HasSubstr("the run has no line for step 4"));
}

}  // namespace
}  // namespace lockstep::cli
