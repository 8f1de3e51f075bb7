#include "base/again.h"

#include <gtest/gtest.h>

#include <vector>

namespace lockstep {
namespace {

class CountingClock : public Clock {
 public:
  int64_t monotonic_ns() override { return 0; }
  int64_t unix_ns() override { return 0; }
  void sleep_ns(int64_t duration_ns) override { slept_ns += duration_ns; }
  int64_t slept_ns = 0;
};

// Fails with the codes in turn, then returns 7.
struct Reads {
  std::vector<Code> fails;
  size_t calls = 0;
  Result<int> operator()() {
    if (calls++ < fails.size()) return Error{fails[calls - 1], "no"};
    return 7;
  }
};

TEST(AgainWhileRefused, ARefusedReadIsTriedThreeTimesMore) {
  CountingClock clock;
  Reads reads{{Code::kIo, Code::kIo, Code::kIo}};
  EXPECT_EQ(again_while_refused(clock, [&] { return reads(); }).value(), 7);
  EXPECT_EQ(clock.slept_ns, 10'500'000'000);

  Reads broken{{Code::kIo, Code::kIo, Code::kIo, Code::kIo}};
  const auto failed = again_while_refused(clock, [&] { return broken(); });
  EXPECT_EQ(failed.error().code, Code::kIo);
  EXPECT_EQ(broken.calls, 4u);
}

TEST(AgainWhileRefused, WhatIsWrongIsNotReadAgain) {
  CountingClock clock;
  Reads reads{{Code::kCorrupt}};
  EXPECT_EQ(again_while_refused(clock, [&] { return reads(); }).error().code, Code::kCorrupt);
  Reads later{{Code::kIo, Code::kNotFound}};
  EXPECT_EQ(again_while_refused(clock, [&] { return later(); }).error().code, Code::kNotFound);
  EXPECT_EQ(clock.slept_ns, 500'000'000);
}

}  // namespace
}  // namespace lockstep
