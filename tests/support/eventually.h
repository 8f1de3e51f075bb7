// Waits for what must come true. A busy machine makes it late and nothing else: the patience is far
// more than an idle machine needs, and nothing is concluded from the time that passed.
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace lockstep::test_support {

inline constexpr int kPatienceMs = 60'000;

// Whether `condition` holds within kPatienceMs.
template <typename Condition>
bool eventually(Condition&& condition) {
  constexpr int64_t kMs = 1'000'000, kPauseNs = 2 * kMs;
  const int64_t deadline_ns = system_clock().monotonic_ns() + int64_t{kPatienceMs} * kMs;
  while (!condition()) {
    if (system_clock().monotonic_ns() > deadline_ns) return false;
    system_clock().sleep_ns(kPauseNs);
  }
  return true;
}

}  // namespace lockstep::test_support
