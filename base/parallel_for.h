// Work on numbered items, shared among threads that take the next one when they are done.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

namespace lockstep {
inline namespace base {

// Calls work(i) once for each i in [0, count), on at most `threads` threads, the caller's among
// them; returns when all have ended. Each thread calls the `work` that `make_work` made for it.
// Requires: work does not throw.
template <typename MakeWork>
void parallel_for(size_t count, int threads, const MakeWork& make_work) {
  std::atomic<size_t> next = 0;
  const auto run = [&] {
    auto work = make_work();
    for (size_t i = next++; i < count; i = next++) work(i);
  };
  std::vector<std::thread> others;
  for (size_t t = 1; t < std::min(count, static_cast<size_t>(std::max(1, threads))); ++t)
    others.emplace_back(run);
  run();
  for (std::thread& other : others) other.join();
}

}  // namespace base
}  // namespace lockstep
