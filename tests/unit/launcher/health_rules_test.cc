#include "launcher/health/health_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::launcher::health {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int64_t kLastsNs = HealthRules::kLastsNs, kSecondNs = 1'000'000'000;

Counter fatal(int64_t value) { return {"broken bits", Meaning::kFailed, Kind::kCount, value}; }
Counter harmless(int64_t value) { return {"mended bits", Meaning::kWarning, Kind::kCount, value}; }
Counter state(Meaning meaning, int64_t value) {
  return {"it is hot", meaning, Kind::kState, value};
}

TEST(HealthRules, H1WhatACounterHadAtTheFirstLookSaysNothing) {
  HealthRules rules;
  EXPECT_EQ(rules.note({fatal(7), harmless(9000)}, 0), Health{});
  EXPECT_EQ(rules.note({fatal(7), harmless(9000)}, kSecondNs), Health{});
  // It was not there at the first look.
  EXPECT_EQ(rules.note({{"late", Meaning::kFailed, Kind::kCount, 5}}, kSecondNs), Health{});
}

TEST(HealthRules, H1AStateThatLastedAtTheFirstLookIsSaidAndHasFailedNobody) {
  HealthRules rules;
  const Health health = rules.note({state(Meaning::kFailed, 1)}, 0);
  EXPECT_EQ(health.failed, "");
  EXPECT_THAT(health.lines, ElementsAre("it is hot (from before this agent started)"));
  EXPECT_EQ(rules.note({state(Meaning::kFailed, 1)}, kSecondNs).failed, "") << "it lasts";
}

TEST(HealthRules, H2GrowthThatMeansSoHasFailedTheHardwareForGood) {
  for (const Counter& before : {fatal(3), state(Meaning::kFailed, 0)}) {
    HealthRules rules;
    rules.note({before}, 0);
    Counter after = before;
    ++after.value;
    const Health health = rules.note({after}, kSecondNs);
    EXPECT_THAT(health.failed, HasSubstr(before.what));
    EXPECT_THAT(health.lines, ElementsAre(health.failed));
    EXPECT_EQ(rules.note({before}, 2 * kSecondNs), health) << "it is back";
    EXPECT_EQ(rules.note({}, 100 * kLastsNs), health) << "its file has gone";
  }
}

TEST(HealthRules, H3AWarningFailsNobodyAndEnds) {
  HealthRules rules;
  rules.note({harmless(10)}, 0);
  const Health health = rules.note({harmless(12)}, kSecondNs);
  EXPECT_EQ(health.failed, "");
  EXPECT_THAT(health.lines, ElementsAre("mended bits: 2 more"));
  EXPECT_EQ(rules.note({harmless(12)}, kSecondNs + kLastsNs - 1), health);
  EXPECT_EQ(rules.note({harmless(12)}, kSecondNs + kLastsNs), Health{});
}

TEST(HealthRules, H3AStateThatComesAndGoesIsOneLine) {
  HealthRules rules;
  rules.note({state(Meaning::kWarning, 0)}, 0);
  for (int64_t second = 1; second < 100; ++second)
    EXPECT_THAT(rules.note({state(Meaning::kWarning, second % 2)}, second * kSecondNs).lines,
                ElementsAre("it is hot"));
  EXPECT_EQ(rules.note({state(Meaning::kWarning, 0)}, 99 * kSecondNs + kLastsNs), Health{});
}

TEST(HealthRules, H4WhatGrowsOnIsSaidAgainAfterALongTimeOnly) {
  HealthRules rules;
  rules.note({harmless(0)}, 0);
  std::vector<std::string> said;
  for (int64_t second = 1; second <= 1300; ++second) {
    const Health health = rules.note({harmless(second)}, second * kSecondNs);
    ASSERT_EQ(health.lines.size(), 1u);
    if (said.empty() || said.back() != health.lines[0]) said.push_back(health.lines[0]);
  }
  EXPECT_THAT(
      said, ElementsAre("mended bits: 1 more", "mended bits: 601 more", "mended bits: 1201 more"));
}

TEST(HealthRules, ACounterThatBeginsAnewGrowsFromThere) {
  HealthRules rules;
  rules.note({harmless(1000)}, 0);
  EXPECT_EQ(rules.note({harmless(0)}, kSecondNs), Health{}) << "its driver was loaded again";
  EXPECT_THAT(rules.note({harmless(1)}, 2 * kSecondNs).lines, ElementsAre("mended bits: 1 more"));
}

TEST(HealthRules, ManyLinesAreCutAndWhatHasFailedComesFirst) {
  HealthRules rules;
  std::vector<Counter> counters{{"zzz", Meaning::kFailed, Kind::kCount, 0}};
  for (int i = 0; i < 100; ++i)
    counters.push_back({"warning " + std::to_string(i), Meaning::kWarning, Kind::kCount, 0});
  rules.note(counters, 0);
  for (Counter& counter : counters) counter.value = INT64_MAX;
  const Health health = rules.note(counters, kSecondNs);
  EXPECT_EQ(health.lines.size(), HealthRules::kMostLines);
  EXPECT_EQ(health.lines.front(), health.failed);
  EXPECT_THAT(health.failed, HasSubstr("zzz: 9223372036854775807 more"));
  EXPECT_THAT(health.lines.back(), HasSubstr("more findings"));
}

}  // namespace
}  // namespace lockstep::launcher::health
