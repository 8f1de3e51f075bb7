#include "base/queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

namespace lockstep {
namespace {

TEST(BoundedQueue, FirstInFirstOutAndDrainsAfterClose) {
  BoundedQueue<std::unique_ptr<int>> queue(3);
  EXPECT_TRUE(queue.push(std::make_unique<int>(1)));
  EXPECT_TRUE(queue.push(std::make_unique<int>(2)));
  EXPECT_EQ(queue.size(), 2u);
  queue.close();
  EXPECT_FALSE(queue.push(std::make_unique<int>(3)));
  EXPECT_EQ(**queue.pop(), 1);
  EXPECT_EQ(**queue.pop(), 2);
  EXPECT_FALSE(queue.pop().has_value());
}

TEST(BoundedQueue, EveryItemOnceThroughASmallQueue) {
  BoundedQueue<int> queue(2);
  constexpr int kItems = 2000;
  std::atomic<int64_t> sum = 0;
  std::vector<std::thread> consumers;
  for (int i = 0; i < 3; ++i)
    consumers.emplace_back([&] {
      while (const auto item = queue.pop()) sum += *item;
    });
  for (int i = 1; i <= kItems; ++i) {
    ASSERT_TRUE(queue.push(i));
    ASSERT_LE(queue.size(), 2u);
  }
  queue.close();
  for (std::thread& consumer : consumers) consumer.join();
  EXPECT_EQ(sum, int64_t{kItems} * (kItems + 1) / 2);
}

TEST(BoundedQueue, CloseFreesWaiters) {
  BoundedQueue<int> full(1), empty(1);
  ASSERT_TRUE(full.push(1));
  std::thread pusher([&] { EXPECT_FALSE(full.push(2)); });
  std::thread popper([&] { EXPECT_FALSE(empty.pop().has_value()); });
  full.close();
  empty.close();
  pusher.join();
  popper.join();
}

}  // namespace
}  // namespace lockstep
