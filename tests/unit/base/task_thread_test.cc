#include "base/task_thread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <vector>

#include "tests/support/eventually.h"

namespace lockstep {
namespace {

using testing::ElementsAre;

TEST(TaskThread, AreDoneInOrderAndOfAKindTheNewestAlone) {
  std::promise<void> open;
  std::vector<int> done;
  {
    TaskThread tasks;
    tasks.post([&] { open.get_future().wait(); });
    tasks.post([&] { done.push_back(1); });
    tasks.post_latest("page", [&] { done.push_back(2); });
    tasks.post([&] { done.push_back(3); });
    tasks.post_latest("page", [&] { done.push_back(4); });
    tasks.post_latest("beat", [&] { done.push_back(5); });
    open.set_value();
    tasks.finish();
    EXPECT_THAT(done, ElementsAre(1, 3, 4, 5));
    tasks.post_latest("page", [&] { done.push_back(6); });
  }
  EXPECT_THAT(done, ElementsAre(1, 3, 4, 5, 6)) << "what is left is done at the end";
}

constexpr std::chrono::milliseconds kLong{test_support::kPatienceMs}, kShort{1};

TEST(TaskThread, RunWaitsForWhatEnds) {
  std::vector<int> done;
  TaskThread tasks(kLong);
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(tasks.run([&] { done.push_back(i); }));
    ASSERT_EQ(done.size(), static_cast<size_t>(i) + 1);
  }
}

TEST(TaskThread, RunDoesNotWaitForWhatHangs) {
  std::promise<void> begun, back;
  std::vector<int> done;
  TaskThread tasks(kShort);
  EXPECT_TRUE(tasks.run([&] {
    begun.set_value();
    back.get_future().wait();
  }));
  begun.get_future().wait();
  while (tasks.run([&] { done.push_back(1); })) {
  }
  EXPECT_FALSE(tasks.run([] { FAIL() << "more than the limit"; }));
  EXPECT_FALSE(tasks.finish_within(kShort));
  tasks.post([&] { done.push_back(2); });
  back.set_value();
  ASSERT_TRUE(tasks.finish_within(kLong));
  EXPECT_EQ(done.size(), TaskThread::kMostWaiting + 1);
  EXPECT_EQ(done.back(), 2) << "what is posted is not left out";
}

TEST(TaskThread, AskBringsWhatEndsAndNothingOfWhatHangs) {
  TaskThread answers(kLong);
  EXPECT_EQ(answers.ask<int>([] { return 7; }), 7);
  std::promise<void> back;
  std::promise<int> late;
  TaskThread hangs(kShort);
  EXPECT_EQ(hangs.ask<int>([&] {
    back.get_future().wait();
    late.set_value(8);
    return 8;
  }),
            std::nullopt);
  back.set_value();
  EXPECT_EQ(late.get_future().get(), 8);  // it was done all the same
}

TEST(TaskThread, AProcessWaitsForAllOfItsThreadsButNotForEver) {
  std::promise<void> back;
  bool done = false;
  TaskThread idle, tasks;
  { TaskThread gone; }
  EXPECT_TRUE(finish_task_threads());
  tasks.post([&] {
    back.get_future().wait();
    done = true;
  });
  EXPECT_FALSE(finish_task_threads(kShort));
  back.set_value();
  EXPECT_TRUE(finish_task_threads(kLong));
  EXPECT_TRUE(done);
}

TEST(TaskThread, ATaskDoesNotWaitForItself) {
  std::atomic<bool> all = true;
  TaskThread tasks;
  tasks.post([&] { all = finish_task_threads(kLong); });
  tasks.finish();
  EXPECT_FALSE(all);
}

}  // namespace
}  // namespace lockstep
