#include "core/optim/not_finite.h"

#include <gtest/gtest.h>

namespace lockstep::core {
namespace {

using Verdict = NotFinite::Verdict;

TEST(NotFinite, IsJudgedByThePolicy) {
  EXPECT_EQ(judge_not_finite(NanPolicy::kSkip, 0).verdict, Verdict::kSkip);
  EXPECT_EQ(judge_not_finite(NanPolicy::kRollback, 0).verdict, Verdict::kGoBack);
  const NotFinite stop = judge_not_finite(NanPolicy::kStop, 0);
  EXPECT_EQ(stop.verdict, Verdict::kStop);
  EXPECT_NE(stop.advice.find("training.nan_policy"), std::string::npos) << stop.advice;
}

TEST(NotFinite, ARunGoesBackForSoManySteps) {
  EXPECT_EQ(judge_not_finite(NanPolicy::kRollback, kMaxLeftOut - 1).verdict, Verdict::kGoBack);
  const NotFinite stop = judge_not_finite(NanPolicy::kRollback, kMaxLeftOut);
  EXPECT_EQ(stop.verdict, Verdict::kStop);
  EXPECT_NE(stop.advice.find("16 steps are skipped already"), std::string::npos) << stop.advice;
}

TEST(SkipList, StaysInOrder) {
  std::vector<int64_t> list;
  for (const int64_t step : {7, 3, 5}) leave_out(list, step);
  EXPECT_EQ(list, (std::vector<int64_t>{3, 5, 7}));
  EXPECT_TRUE(is_left_out(list, 5));
  EXPECT_FALSE(is_left_out(list, 4));
}

}  // namespace
}  // namespace lockstep::core
