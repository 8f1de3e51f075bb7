#include "base/task_thread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <vector>

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

TEST(TaskThread, RunWaitsForWhatEndsAndNotForWhatHangs) {
  std::promise<void> back;
  std::vector<int> done;
  TaskThread tasks;
  EXPECT_TRUE(tasks.run([&] { done.push_back(1); }));
  EXPECT_THAT(done, ElementsAre(1));
  EXPECT_TRUE(tasks.run([&] { back.get_future().wait(); }));
  for (size_t i = 0; i < TaskThread::kMostWaiting; ++i)
    ASSERT_TRUE(tasks.run([&] { done.push_back(2); })) << i;
  EXPECT_FALSE(tasks.run([] { FAIL() << "more than the limit"; }));
  back.set_value();
  tasks.finish();
  EXPECT_EQ(done.size(), TaskThread::kMostWaiting + 1);
  EXPECT_TRUE(tasks.run([&] { done.clear(); }));
  EXPECT_TRUE(done.empty()) << "nothing hangs any more, so it is waited for";
}

}  // namespace
}  // namespace lockstep
