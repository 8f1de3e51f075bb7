#include "cli/shared/progress_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

namespace lockstep::cli {
namespace {

using testing::HasSubstr;

class ManualClock final : public Clock {
 public:
  int64_t monotonic_ns() override { return now_ns; }
  int64_t unix_ns() override { return now_ns; }
  void sleep_ns(int64_t duration_ns) override { now_ns += duration_ns; }
  int64_t now_ns = 0;
};
constexpr int64_t kSecond = 1'000'000'000;

TEST(ProgressLine, ATerminalsLineIsRewritten) {
  ManualClock clock;
  std::ostringstream err;
  ProgressLine line("verify", clock, err, /*terminal=*/true);
  line.show(1'000'000, 4'000'000);
  EXPECT_EQ(err.str(), "");  // nothing flickers for what is over at once
  clock.sleep_ns(kSecond);
  line.show(1'000'000, 4'000'000);
  EXPECT_EQ(err.str(),
            "\rverify: [=====>              ]  25.0 %, 1.0 of 4.0 MB, 1.0 MB/s, ETA 0:00:03  ");
  line.show(4'000'000, 4'000'000);
  line.end();
  line.end();
  EXPECT_THAT(err.str(), HasSubstr("\rverify: [====================] 100.0 %"));
  EXPECT_TRUE(err.str().ends_with("  \n"));
}

TEST(ProgressLine, ALogGetsALineEveryFewSecondsAndNoneForWhatIsShort) {
  ManualClock clock;
  std::ostringstream err;
  ProgressLine line("export", clock, err, /*terminal=*/false);
  for (int64_t done = 1; done <= 4; ++done) {
    clock.sleep_ns(kSecond);
    line.show(done, 20);
  }
  EXPECT_EQ(err.str(), "");
  clock.sleep_ns(kSecond);
  line.show(10, 20);
  EXPECT_THAT(err.str(), HasSubstr("export:  50.0 %"));
  line.show(11, 20);
  line.show(20, 20);
  line.end();
  const std::string all = err.str();
  EXPECT_EQ(std::count(all.begin(), all.end(), '\n'), 2);
  EXPECT_EQ(all.find('\r'), std::string::npos);
}

TEST(ProgressLine, NothingToDoIsNoDivisionByZero) {
  ManualClock clock;
  std::ostringstream err;
  ProgressLine line("diff", clock, err, /*terminal=*/true);
  line.show(0, 0);
  EXPECT_THAT(err.str(), testing::Not(HasSubstr("nan")));
}

}  // namespace
}  // namespace lockstep::cli
