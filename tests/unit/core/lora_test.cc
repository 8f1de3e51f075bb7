// Adapters beside frozen weights: the same bits for any spread, and nothing but weights for what is
// frozen. Their gradients: decoder_options_test.cc, and against PEFT tests/reference/lora_test.py.

#include "core/comm/join.h"
#include "core/train/memory_stats.h"
#include "core/train/state_pieces.h"
#include "hf/configured_model.h"
#include "tests/unit/core/strategy_grid.h"

namespace lockstep::core {
namespace {

void with_adapters(Config& config) {
  config.lora = {4, 8, 0.1, {"q_proj", "v_proj", "o_proj", "up_proj", "down_proj"}};
}

TEST(Lora, EveryStrategyAndWorldSizeGivesTheSameBits) {
  check_settings(spreads_with_defaults(4), 3, with_adapters);
}

TEST(Lora, ASampleOfAllCombinationsGivesTheSameBits) {
  check_settings(sample_of_settings(20261121, 20), 4, with_adapters);
}

// B is zero at first.
TEST(Lora, TheFirstLossIsThatOfTheBaseModel) {
  for (bool bf16 : {false, true}) {
    const Setting setting{.strategy = ShardingStrategy::kSingle, .bf16 = bf16};
    Config adapted = setting.config(), plain = adapted;
    with_adapters(adapted);
    const auto loss = [&](const Config& config) {
      const std::string line = train(setting, 1, config).steps[0];
      return line.substr(0, line.find(' '));
    };
    EXPECT_EQ(loss(adapted), loss(plain));
  }
}

// A full model holds weights, m and v in fp32, and their copy in bf16.
TEST(Lora, FrozenWeightsAreAllThatIsHeldAndNoneOfThemIsInACheckpoint) {
  install_counting_allocator();
  auto alone = join({});
  ASSERT_TRUE(alone.ok());
  for (bool bf16 : {false, true}) {
    Config config;
    config.model.dim = 256;
    config.lora.rank = 1;
    config.training.mixed_precision_param = bf16 ? FloatType::kBfloat16 : FloatType::kFloat32;
    const auto spec = hf::configured_model(config, 512);
    ASSERT_TRUE(spec.ok());
    const int64_t before = memory_stats().allocated_bytes;
    TrainingStep step(config, spec.value(), alone.value().groups());
    ASSERT_TRUE(step.initialize(nullptr).ok());
    const double bytes = static_cast<double>(memory_stats().allocated_bytes - before);
    EXPECT_NEAR(bytes / static_cast<double>(spec.value().parameter_count()), bf16 ? 2 : 4, 0.4);
    for (const std::string& name : parameter_names(step.units()))
      EXPECT_NE(name.find(".lora_"), std::string::npos) << name;
    int64_t elements = 0;
    const auto live = LiveState::of(step.units());
    for (const auto& piece : live->layout()) elements += piece.piece.length;
    EXPECT_EQ(elements, 3 * spec.value().trained_count());
  }
}

}  // namespace
}  // namespace lockstep::core
