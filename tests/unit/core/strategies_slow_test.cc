// All combinations of what must not change a bit, a strategy on a number of ranks at a time.
#include "tests/unit/core/strategy_grid.h"

namespace lockstep::core {
namespace {

using Spread = std::pair<ShardingStrategy, int>;

class StrategiesSlow : public testing::TestWithParam<Spread> {};

TEST_P(StrategiesSlow, AllCombinationsGiveTheSameBits) {
  std::vector<Setting> settings = every_setting();
  std::erase_if(settings, [](const Setting& setting) {
    return Spread(setting.strategy, setting.world_size) != GetParam();
  });
  check_settings(settings, 30);
}

INSTANTIATE_TEST_SUITE_P(All, StrategiesSlow, testing::ValuesIn(every_spread()),
                         [](const auto& test) {
                           return text(test.param.first, "_on_", test.param.second);
                         });

}  // namespace
}  // namespace lockstep::core
