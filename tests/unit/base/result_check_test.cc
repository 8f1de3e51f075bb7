#include <gtest/gtest.h>

#include <memory>

#include "base/check.h"
#include "base/result.h"

namespace lockstep {
namespace {

Result<int> half(int number) {
  if (number % 2 != 0) return Error{Code::kConfig, "odd"};
  return number / 2;
}
Result<int> quarter(int number) {
  LOCKSTEP_TRY(const int once, half(number));
  LOCKSTEP_TRY(const int twice, half(once));
  return twice;
}
Result<void> check_even(int number) {
  LOCKSTEP_RETURN_IF_ERROR(half(number));
  return {};
}

TEST(Result, CarriesAValueOrAnError) {
  EXPECT_EQ(quarter(8).value(), 2);
  EXPECT_EQ(quarter(6).error().message, "odd");
  EXPECT_TRUE(check_even(2).ok());
  EXPECT_EQ(check_even(1).error().in("here").message, "here: odd");
  EXPECT_EQ(check_even(1).error().in("here").code, Code::kConfig);
}

TEST(Result, MovesWhatCannotBeCopied) {
  Result<std::unique_ptr<int>> made = std::make_unique<int>(7);
  ASSERT_TRUE(made.ok());
  const std::unique_ptr<int> taken = std::move(made).value();
  EXPECT_EQ(*taken, 7);
}

TEST(Result, ExitStatusIsTheContract) {
  for (const Code code : {Code::kConfig, Code::kDenied, Code::kNotFinite})
    EXPECT_EQ(exit_status(code), 64) << code_name(code);
  EXPECT_EQ(exit_status(Code::kNoSpace), 74);
  EXPECT_EQ(exit_status(Code::kAborted), 75);
  EXPECT_EQ(exit_status(Code::kPeerLost), 76);
  for (const Code code : {Code::kIo, Code::kCorrupt, Code::kNotFound, Code::kTimeout, Code::kBug})
    EXPECT_EQ(exit_status(code), 70) << code_name(code);
}

TEST(CheckDeathTest, PrintsTheValuesAndAborts) {
  const int rank = 3;
  LOCKSTEP_CHECK(rank == 3, "never built ", rank);
  EXPECT_DEATH(LOCKSTEP_CHECK(rank < 2, "rank ", rank), "CHECK failed at .*rank < 2: rank 3");
}

}  // namespace
}  // namespace lockstep
