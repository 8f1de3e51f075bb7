#include "launcher/agent/errands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <vector>

namespace lockstep::launcher {
namespace {

using testing::ElementsAre;

TEST(Errands, AreDoneInOrderAndOfAKindTheNewestAlone) {
  std::promise<void> open;
  std::vector<int> done;
  {
    Errands errands;
    errands.post([&] { open.get_future().wait(); });
    errands.post([&] { done.push_back(1); });
    errands.post_latest("page", [&] { done.push_back(2); });
    errands.post([&] { done.push_back(3); });
    errands.post_latest("page", [&] { done.push_back(4); });
    errands.post_latest("beat", [&] { done.push_back(5); });
    open.set_value();
    errands.finish();
    EXPECT_THAT(done, ElementsAre(1, 3, 4, 5));
    errands.post_latest("page", [&] { done.push_back(6); });
  }
  EXPECT_THAT(done, ElementsAre(1, 3, 4, 5, 6)) << "what is left is done at the end";
}

}  // namespace
}  // namespace lockstep::launcher
