#include "launcher/control/phase_silences.h"

#include <gtest/gtest.h>

namespace lockstep::launcher::control {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

TEST(PhaseSilences, TheLimitHoldsUntilEnoughAreKnown) {
  PhaseSilences silences;
  for (int i = 0; i < 19; ++i) silences.note(Phase::kStep, kSecond);
  EXPECT_EQ(silences.hang_ns(Phase::kStep, 500 * kSecond), 500 * kSecond);
  silences.note(Phase::kStep, 4 * kSecond);
  EXPECT_EQ(silences.hang_ns(Phase::kStep, 500 * kSecond), 80 * kSecond);
  EXPECT_EQ(silences.hang_ns(Phase::kStep, 50 * kSecond), 50 * kSecond);
  EXPECT_EQ(silences.hang_ns(Phase::kLoad, 500 * kSecond), 500 * kSecond);
}

TEST(PhaseSilences, ShortOnesLeaveAMinute) {
  PhaseSilences silences;
  for (int i = 0; i < 20; ++i) silences.note(Phase::kStep, kSecond / 10);
  EXPECT_EQ(silences.hang_ns(Phase::kStep, 500 * kSecond), 60 * kSecond);
}

}  // namespace
}  // namespace lockstep::launcher::control
