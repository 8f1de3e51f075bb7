// All combinations of what must not change a bit.
#include "tests/unit/core/strategy_grid.h"

namespace lockstep::core {
namespace {

TEST(StrategiesSlow, AllCombinationsGiveTheSameBits) { check_settings(every_setting(), 30); }

}  // namespace
}  // namespace lockstep::core
