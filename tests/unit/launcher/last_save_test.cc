#include "launcher/agent/last_save.h"

#include <gtest/gtest.h>

#include <vector>

namespace lockstep::launcher {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr double kGraceSeconds = 100;

TEST(LastSave, BeginsItsGraceBeforeTheEndAndOnce) {
  LastSave save(kGraceSeconds);
  EXPECT_FALSE(save.is_due(INT64_MAX)) << "nobody knows of an end";
  save.note_end(3600 * kSecondNs);
  EXPECT_FALSE(save.is_due(3500 * kSecondNs - 1));
  EXPECT_TRUE(save.is_due(3500 * kSecondNs));
  EXPECT_FALSE(save.is_due(3501 * kSecondNs));
}

TEST(LastSave, ALimitThatIsMovedMovesIt) {
  LastSave save(kGraceSeconds);
  save.note_end(3600 * kSecondNs);
  save.note_end(7200 * kSecondNs);
  EXPECT_FALSE(save.is_due(3500 * kSecondNs));
  save.note_end(3650 * kSecondNs);
  EXPECT_TRUE(save.is_due(3550 * kSecondNs));
}

// The last answer before the save is a few seconds old, and Slurm is not asked all the time.
TEST(LastSave, AsksMoreOftenNearTheEnd) {
  LastSave save(kGraceSeconds);
  std::vector<int64_t> asked;
  for (int64_t second = 0; second <= 3500; ++second) {
    if (!save.asks(second * kSecondNs)) continue;
    asked.push_back(second);
    save.note_end(3600 * kSecondNs);
  }
  EXPECT_EQ(asked.front(), 0);
  EXPECT_EQ(asked[1], LastSave::kAskNs / 2 / kSecondNs);
  EXPECT_GE(asked.back(), 3500 - 2 * LastSave::kAskNearTheEndNs / kSecondNs);
  EXPECT_LE(asked.size(), 20u);
  for (size_t i = 1; i < asked.size(); ++i)
    EXPECT_GE(asked[i] - asked[i - 1], LastSave::kAskNearTheEndNs / kSecondNs);
}

}  // namespace
}  // namespace lockstep::launcher
