#include "launcher/health/health_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "tests/support/eventually.h"
#include "tests/support/shared_clock.h"

namespace lockstep::launcher::health {
namespace {

using test_support::eventually;
using test_support::SharedClock;
using testing::ElementsAre;
using testing::HasSubstr;

// Shared with the reader, which may outlive the test.
struct Hardware {
  std::atomic<int64_t> errors = 5;
  std::atomic<int> looks = 0;
  std::shared_future<void> hangs_until;  // of a look that begins; not valid: none hangs
};

class Watched : public testing::Test {
 protected:
  Watched() { clock_.stop(); }

  ReadCounters reader() {
    return [hardware = hardware_] {
      ++hardware->looks;
      if (hardware->hangs_until.valid()) hardware->hangs_until.wait();
      return std::vector<Counter>{{"errors", Meaning::kFailed, Kind::kCount, hardware->errors}};
    };
  }
  // Asks until there is news.
  Health await_news(HealthWatch& watch) {
    std::optional<Health> news;
    EXPECT_TRUE(eventually([&] { return (news = watch.news()).has_value(); }));
    return news.value_or(Health{});
  }

  SharedClock clock_;
  std::shared_ptr<Hardware> hardware_ = std::make_shared<Hardware>();
};

TEST_F(Watched, IsLookedAtAtOnceAndThenNowAndThen) {
  HealthWatch watch(clock_, reader());
  EXPECT_EQ(watch.news(), std::nullopt);
  EXPECT_TRUE(eventually([&] { return hardware_->looks == 1; }));
  for (int look = 2; look <= 4; ++look) {
    clock_.skip(HealthWatch::kLookNs - 1);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(watch.news(), std::nullopt);
    EXPECT_EQ(hardware_->looks, look - 1);
    clock_.skip(1);
    EXPECT_TRUE(eventually([&] { return !watch.news() && hardware_->looks == look; }));
  }
  hardware_->errors = 6;
  clock_.skip(HealthWatch::kLookNs);
  EXPECT_EQ(await_news(watch).failed, "errors: 1 more");
  EXPECT_EQ(watch.news(), std::nullopt) << "it is said once";
}

TEST_F(Watched, IsLookedAtSoonWhereSomethingHasHappened) {
  HealthWatch watch(clock_, reader());
  EXPECT_TRUE(eventually([&] { return !watch.news() && hardware_->looks == 1; }));
  watch.look_soon();
  EXPECT_TRUE(eventually([&] { return !watch.news() && hardware_->looks == 2; }));
  for (int i = 0; i < 100; ++i) watch.news();
  EXPECT_EQ(hardware_->looks, 2) << "once";
}

TEST_F(Watched, AReaderThatHangsHoldsNobodyUpAndIsSaid) {
  std::promise<void> back;
  hardware_->hangs_until = back.get_future().share();
  HealthWatch watch(clock_, reader());
  EXPECT_EQ(watch.news(), std::nullopt);
  EXPECT_TRUE(eventually([&] { return hardware_->looks == 1; }));
  clock_.skip(HealthWatch::kSilentNs - 1);
  EXPECT_EQ(watch.news(), std::nullopt);
  clock_.skip(1);
  const auto said = watch.news();
  ASSERT_TRUE(said);
  EXPECT_EQ(said->failed, "");
  EXPECT_THAT(said->lines, ElementsAre(HasSubstr("cannot read the hardware counters")));
  EXPECT_EQ(hardware_->looks, 1) << "nobody joins it";
  back.set_value();
  EXPECT_TRUE(eventually([&] { return !watch.news() && hardware_->looks == 2; })) << "it is back";
}

TEST_F(Watched, AReaderThatHangsForGoodIsLeftAlone) {
  std::promise<void> never;
  hardware_->hangs_until = never.get_future().share();
  {
    HealthWatch watch(clock_, reader());
    watch.news();
    EXPECT_TRUE(eventually([&] { return hardware_->looks == 1; }));
  }
  EXPECT_GT(hardware_.use_count(), 1) << "it has what it needs";
  never.set_value();
  EXPECT_TRUE(eventually([&] { return hardware_.use_count() == 1; }));
}

}  // namespace
}  // namespace lockstep::launcher::health
