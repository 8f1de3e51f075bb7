#include "base/parallel_for.h"

#include <gtest/gtest.h>

#include <barrier>
#include <mutex>
#include <set>

namespace lockstep {
namespace {

TEST(ParallelFor, EachItemIsDoneOnce) {
  for (const int threads : {-1, 1, 2, 7})
    for (const size_t count : {0, 1, 5, 100}) {
      std::vector<std::atomic<int>> done(count);
      parallel_for(count, threads, [&] { return [&](size_t i) { ++done[i]; }; });
      for (size_t i = 0; i < count; ++i) EXPECT_EQ(done[i], 1) << i << " of " << count;
    }
}

// Each item waits until every thread has one.
TEST(ParallelFor, EachThreadHasWorkOfItsOwn) {
  constexpr int kThreads = 4;
  std::barrier all_here(kThreads);
  std::atomic<int> made = 0;
  std::mutex mutex;
  std::set<int> used;
  parallel_for(kThreads, kThreads, [&] {
    return [&, mine = made++](size_t) {
      all_here.arrive_and_wait();
      const std::lock_guard lock(mutex);
      used.insert(mine);
    };
  });
  EXPECT_EQ(used.size(), static_cast<size_t>(kThreads));
}

}  // namespace
}  // namespace lockstep
