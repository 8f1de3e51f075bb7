#include "cli/replay/replay_difference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::cli {
namespace {

using testing::HasSubstr;

StepRecord sound(int64_t step) {
  StepRecord record;
  record.step = step;
  record.loss = 1;
  record.grad_norm = 0.5;
  record.weights = {"a", "b", "c"};
  record.gradients = {"d", "e", "f"};
  return record;
}

struct Runs {
  const std::vector<std::string> units{"embedding", "layers.0", "head"};
  RunLog logged, replayed;
  Runs() {
    for (int64_t step = 1; step <= 6; ++step) logged.steps.push_back(sound(step));
    replayed = logged;
  }
  StepRecord& now(size_t step) { return replayed.steps[step - 1]; }
  std::string difference(int64_t from = 2, int64_t to = 5) const {
    return first_difference(logged, replayed, units, from, to).value().value_or("equal");
  }
};

TEST(ReplayDifference, EqualStepsAreEqual) {
  Runs runs;
  runs.now(1).loss = runs.now(6).loss = 7;  // not asked for
  EXPECT_EQ(runs.difference(), "equal");
}

TEST(ReplayDifference, TheFirstStepIsNamed) {
  Runs runs;
  runs.now(5).loss = 512;
  runs.now(4).gradients[1] = "x";
  EXPECT_THAT(runs.difference(), HasSubstr("step 4: the gradients of 1 of 3 units (layers.0) "));
}

TEST(ReplayDifference, WeightsComeBeforeTheirGradients) {
  Runs runs;
  runs.now(3).loss = 7;
  runs.now(3).weights = {"a", "b", "x"};
  runs.now(3).gradients = {"x", "y", "z"};
  EXPECT_THAT(runs.difference(), HasSubstr("step 3: the weights of 1 of 3 units (head) differ, and "
                                           "step 2 had equal weights and gradients"));
  EXPECT_THAT(runs.difference(3), HasSubstr("other weights than its checkpoint"));
}

TEST(ReplayDifference, WithoutDigestsLossAndNormDecide) {
  Runs runs;
  for (StepRecord& each : runs.logged.steps) each.weights = each.gradients = {};
  EXPECT_EQ(runs.difference(), "equal");
  runs.now(3).grad_norm = 8;
  EXPECT_THAT(runs.difference(), HasSubstr("step 3 differs: loss 0x1p+0 was logged"));
  EXPECT_THAT(runs.difference(), HasSubstr("no unit is named"));
}

TEST(ReplayDifference, AStepThatIsNotThereIsAnError) {
  Runs runs;
  runs.logged.steps.erase(runs.logged.steps.begin() + 3);
  const auto difference = first_difference(runs.logged, runs.replayed, runs.units, 2, 5);
  ASSERT_FALSE(difference.ok());
  EXPECT_EQ(difference.error().code, Code::kConfig);
  EXPECT_THAT(difference.error().message, HasSubstr("the run has no line for step 4"));
}

}  // namespace
}  // namespace lockstep::cli
