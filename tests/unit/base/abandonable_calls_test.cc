#include "base/abandonable_calls.h"

#include <gtest/gtest.h>

#include <future>

namespace lockstep {
namespace {

using std::chrono::hours;
using std::chrono::nanoseconds;

bool never() { return false; }

// A call that says which thread it is on.
std::thread::id thread_of_a_call(AbandonableCalls& calls) {
  std::thread::id id;
  const auto done = calls.run(
      [&id]() -> Result<void> {
        id = std::this_thread::get_id();
        return {};
      },
      hours(1), never);
  EXPECT_TRUE(done.has_value() && done->ok());
  return id;
}

TEST(AbandonableCalls, TheOutcomeComesBack) {
  AbandonableCalls calls;
  const auto failed = calls.run(
      []() -> Result<void> {
        return Error{Code::kIo, "no"};
      },
      hours(1), never);
  ASSERT_TRUE(failed.has_value() && !failed->ok());
  EXPECT_EQ(failed->error().message, "no");
}

TEST(AbandonableCalls, OneThreadServesOneCallAfterTheOther) {
  AbandonableCalls calls;
  const std::thread::id first = thread_of_a_call(calls);
  EXPECT_NE(first, std::this_thread::get_id());
  EXPECT_EQ(thread_of_a_call(calls), first);
}

TEST(AbandonableCalls, ACallIsDestroyedBeforeItsOutcomeIsHeard) {
  AbandonableCalls calls;
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> seen = held;
  calls.run([held = std::move(held)]() -> Result<void> { return {}; }, hours(1), never);
  EXPECT_TRUE(seen.expired());
}

TEST(AbandonableCalls, ACallThatIsGivenUpEndsAloneOnItsThread) {
  // Shared, for a promise must outlive its own set_value.
  const auto gone = std::make_shared<std::promise<void>>();
  const auto begun = std::make_shared<std::promise<void>>();
  std::promise<void> open;
  std::thread::id hung;
  {
    AbandonableCalls calls;
    const std::thread::id first = thread_of_a_call(calls);
    const std::shared_ptr<void> watch(nullptr, [gone](void*) { gone->set_value(); });
    const auto left = calls.run(
        [begun, &hung, watch, opened = open.get_future().share()]() -> Result<void> {
          hung = std::this_thread::get_id();
          begun->set_value();
          opened.wait();
          return {};
        },
        nanoseconds(1), [&] { return begun->get_future().wait(), true; });
    EXPECT_FALSE(left.has_value());
    EXPECT_EQ(hung, first);
    EXPECT_NE(thread_of_a_call(calls), hung);
  }  // waits for the second thread alone
  open.set_value();
  gone->get_future().wait();
}

TEST(AbandonableCalls, PatienceIsAskedForAgainAndAgain) {
  AbandonableCalls calls;
  std::promise<void> enough;
  int asked = 0;
  const auto done = calls.run(
      [&]() -> Result<void> {
        enough.get_future().wait();
        return {};
      },
      nanoseconds(1),
      [&] {
        if (++asked == 3) enough.set_value();
        return false;
      });
  EXPECT_TRUE(done.has_value() && done->ok());
  EXPECT_GE(asked, 3);
}

TEST(AbandonableCalls, TwoCallsAtOnceHaveTwoThreads) {
  AbandonableCalls calls;
  std::promise<void> second_ran;
  std::thread first([&] {
    const auto done = calls.run(
        [&]() -> Result<void> {
          second_ran.get_future().wait();
          return {};
        },
        hours(1), never);
    EXPECT_TRUE(done.has_value() && done->ok());
  });
  thread_of_a_call(calls);
  second_ran.set_value();
  first.join();
}

}  // namespace
}  // namespace lockstep
