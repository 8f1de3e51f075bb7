// Which idle buffer of a pool serves a request: the smallest that is large enough, unless more than
// three quarters of it would be unused. The pool (core/sharding/buffer_pool.h) and the plan of its
// memory (memory_units.h) ask here.
#pragma once

#include <cstdint>

namespace lockstep::layout {

// `idle`: a map from bytes of a buffer, without empty entries. Its end: none serves.
template <typename BySize>
auto best_fit(BySize& idle, int64_t bytes) {
  constexpr int64_t kMostTimes = 4;
  const auto found = idle.lower_bound(bytes);
  return found != idle.end() && found->first <= kMostTimes * bytes ? found : idle.end();
}

}  // namespace lockstep::layout
