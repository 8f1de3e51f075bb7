// Whether a run goes on from a checkpoint under a config.
#include "config/same_training.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/config/config_from.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

const std::vector<std::string>& saved_identity() {
  static const auto lines = identity_lines(from_flags({"--model.dim", "64"}));
  return lines;
}

std::string refusal(const std::vector<std::string>& flags, int64_t slots) {
  const auto gone_on = can_go_on(saved_identity(), slots, from_flags(flags), "step_4");
  return gone_on ? "" : gone_on.error().message;
}

TEST(SameTraining, TheSameRun_GoesOn) {
  EXPECT_EQ(refusal({"--model.dim", "64", "--training.slots", "4"}, 4), "");
}

TEST(SameTraining, OtherSlotsOptimizerOrMoments_AreNamedWithTheKeyToGive) {
  EXPECT_THAT(refusal({"--training.slots", "8"}, 4), HasSubstr("give --training.slots 4, or"));
  EXPECT_THAT(refusal({"--training.slots", "4", "--optimizer.name", "Muon"}, 4),
              HasSubstr("give --optimizer.name AdamW, or"));
  EXPECT_THAT(refusal({"--training.slots", "4", "--optimizer.state_dtype", "bfloat16"}, 4),
              HasSubstr("give --optimizer.state_dtype float32, or"));
}

TEST(SameTraining, AnotherModel_IsNamedByItsKeys) {
  EXPECT_EQ(other_model(saved_identity(), from_flags({"--model.dim", "64"})), "");
  EXPECT_THAT(other_model(saved_identity(), from_flags({"--model.dim", "128"})),
              HasSubstr("model.dim: checkpoint 64, config 128"));
  // 0 is what the data set has, and no other model.
  std::vector<std::string> with_data = saved_identity();
  for (std::string& line : with_data)
    if (line.starts_with("model.vocab_size=")) line = "model.vocab_size=257";
  EXPECT_EQ(other_model(with_data, from_flags({"--model.dim", "64"})), "");
}

}  // namespace
}  // namespace lockstep
