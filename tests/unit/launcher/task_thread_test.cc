#include "launcher/agent/task_thread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <vector>

namespace lockstep::launcher {
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

}  // namespace
}  // namespace lockstep::launcher
