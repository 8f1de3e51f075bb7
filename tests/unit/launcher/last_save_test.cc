#include "launcher/agent/last_save.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "tests/support/eventually.h"
#include "tests/support/shared_clock.h"

namespace lockstep::launcher {
namespace {

using test_support::eventually;
using test_support::SharedClock;

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr double kGraceSeconds = 100;

TEST(LastSave, BeginsItsGraceBeforeTheEndAndOnce) {
  LastSave save(kGraceSeconds, 0);
  EXPECT_FALSE(save.is_due(INT64_MAX)) << "nobody knows of an end";
  save.note(0, {3600 * kSecondNs});
  EXPECT_FALSE(save.is_due(3500 * kSecondNs - 1));
  EXPECT_TRUE(save.is_due(3500 * kSecondNs));
  EXPECT_FALSE(save.is_due(3501 * kSecondNs));
}

TEST(LastSave, ALimitThatIsMovedMovesIt) {
  LastSave save(kGraceSeconds, 0);
  save.note(0, {3600 * kSecondNs});
  save.note(0, {7200 * kSecondNs});
  EXPECT_FALSE(save.is_due(3500 * kSecondNs));
  save.note(0, {3650 * kSecondNs});
  EXPECT_TRUE(save.is_due(3550 * kSecondNs));
}

TEST(LastSave, ALimitThatIsTakenAwayTakesItAway) {
  LastSave save(kGraceSeconds, 0);
  save.note(0, {3600 * kSecondNs});
  save.note(0, {std::nullopt});
  EXPECT_FALSE(save.is_due(INT64_MAX));
}

// A run that saved at its first step each time would be started again for nothing.
TEST(LastSave, OfAShortAllocationHalfAtMostIsItsGrace) {
  for (const double grace_s : {100.0, 1e9}) {
    LastSave save(grace_s, 1000 * kSecondNs);
    save.note(1010 * kSecondNs, {1060 * kSecondNs});
    EXPECT_EQ(save.cut_grace_ns(), 30 * kSecondNs);
    EXPECT_FALSE(save.is_due(1030 * kSecondNs - 1));
    EXPECT_TRUE(save.is_due(1030 * kSecondNs));
  }
  LastSave save(kGraceSeconds, 0);
  save.note(3000 * kSecondNs, {3050 * kSecondNs});
  EXPECT_FALSE(save.cut_grace_ns()) << "it was long, and somebody ends it soon";
  EXPECT_TRUE(save.is_due(3000 * kSecondNs));
  LastSave late(kGraceSeconds, 10 * kSecondNs);
  late.note(10 * kSecondNs, {5 * kSecondNs});
  EXPECT_TRUE(late.is_due(10 * kSecondNs)) << "it is over already";
}

// The seconds at which it asks until `until_s`, of an allocation that ends after 3600.
std::vector<int64_t> asked(LastSave& save, int64_t until_s, bool answered) {
  std::vector<int64_t> asked;
  for (int64_t second = 0; second <= until_s; ++second) {
    if (!save.asks(second * kSecondNs)) continue;
    asked.push_back(second);
    if (answered) save.note(second * kSecondNs, {3600 * kSecondNs});
  }
  return asked;
}

// The last answer before the save is a few seconds old, and Slurm is not asked all the time.
TEST(LastSave, AsksMoreOftenNearTheEnd) {
  LastSave save(kGraceSeconds, 0);
  const std::vector<int64_t> seconds = asked(save, 3500, /*answered=*/true);
  EXPECT_EQ(seconds.front(), 0);
  EXPECT_EQ(seconds[1], LastSave::kAskNs / kSecondNs);
  EXPECT_GE(seconds.back(), 3500 - 2 * LastSave::kAskNearTheEndNs / kSecondNs);
  EXPECT_LE(seconds.size(), 20u);
  for (size_t i = 1; i < seconds.size(); ++i)
    EXPECT_GE(seconds[i] - seconds[i - 1], LastSave::kAskNearTheEndNs / kSecondNs);
}

TEST(LastSave, AsksAgainSoonWhereNoAnswerCame) {
  LastSave save(kGraceSeconds, 0);
  EXPECT_THAT(asked(save, 100, /*answered=*/false), testing::ElementsAre(0, 30, 60, 90));
}

TEST(LastSave, AsksNothingAnyMoreOnceItHasBegun) {
  LastSave save(kGraceSeconds, 0);
  ASSERT_TRUE(save.asks(0));
  save.note(0, {3600 * kSecondNs});
  ASSERT_TRUE(save.is_due(3500 * kSecondNs));
  EXPECT_FALSE(save.asks(3599 * kSecondNs));
}

class EndWatchTest : public testing::Test {
 protected:
  enum class Says { kAnHour, kNothing, kNoEnd };
  EndWatchTest() { clock.stop(); }
  // Has it ask once more. What an earlier question brought is known when this returns.
  bool hears(Says word) {
    says = word;
    const int before = answers;
    clock.skip(LastSave::kAskNs);
    EXPECT_FALSE(watch.last_save_is_due());
    return eventually([&] { return answers > before; });
  }

  SharedClock clock;
  std::atomic<Says> says = Says::kAnHour;
  std::atomic<int> answers = 0;
  EndWatch watch{clock,
                 [this]() -> Result<std::optional<int64_t>> {
                   ++answers;
                   if (says == Says::kNothing) return Error{Code::kTimeout, "slurmctld is away"};
                   if (says == Says::kNoEnd) return std::optional<int64_t>();
                   return std::optional<int64_t>(3600);
                 },
                 kGraceSeconds};
};

TEST_F(EndWatchTest, WithoutAnAnswerTheLastOneHolds) {
  ASSERT_TRUE(hears(Says::kAnHour));
  ASSERT_TRUE(hears(Says::kNothing));
  EXPECT_FALSE(watch.last_save_is_due());
  clock.skip(3600 * kSecondNs);
  EXPECT_TRUE(watch.last_save_is_due());
}

TEST_F(EndWatchTest, AnEndThatIsTakenAwayDoesNotHold) {
  ASSERT_TRUE(hears(Says::kAnHour));
  ASSERT_TRUE(hears(Says::kNoEnd));
  ASSERT_TRUE(hears(Says::kNoEnd));
  EXPECT_FALSE(watch.last_save_is_due());
  clock.skip(3600 * kSecondNs);
  EXPECT_FALSE(watch.last_save_is_due());
}

}  // namespace
}  // namespace lockstep::launcher
