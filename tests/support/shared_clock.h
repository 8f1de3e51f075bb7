// A clock of a test and of the processes that it forks. It goes as the machine's does until the
// test stops it; from then on it stands, and the test moves it on.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <new>

#include "base/check.h"
#include "base/clock.h"
#include "tests/support/eventually.h"

namespace lockstep::test_support {

class SharedClock final : public Clock {
 public:
  SharedClock() {
    void* const memory =
        ::mmap(nullptr, sizeof(State), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    LOCKSTEP_CHECK(memory != MAP_FAILED);
    state_ = new (memory) State;
  }
  ~SharedClock() override { ::munmap(state_, sizeof(State)); }

  int64_t monotonic_ns() override {
    ++state_->looks;
    const int64_t stands_at_ns = state_->stands_at_ns;
    return (stands_at_ns >= 0 ? stands_at_ns : system_clock().monotonic_ns()) + state_->ahead_ns;
  }
  int64_t unix_ns() override { return system_clock().unix_ns() + state_->ahead_ns; }
  void sleep_ns(int64_t duration_ns) override { system_clock().sleep_ns(duration_ns); }

  // The test's. Requires for await_looks and pass: somebody looks at the clock again and again.
  void stop() { state_->stands_at_ns = system_clock().monotonic_ns(); }
  void skip(int64_t ns) { state_->ahead_ns += ns; }
  // Returns when the clock was looked at so often that all that follows from a look is done.
  bool await_looks() {
    constexpr int64_t kEnough = 40;
    const int64_t wanted = state_->looks + kEnough;
    return eventually([&] { return state_->looks >= wanted; });
  }
  // Time passes in small steps, each of which is looked at. Requires: it is stopped.
  bool pass(int64_t ns) {
    constexpr int64_t kStepNs = 200'000'000;
    for (; ns > 0; ns -= kStepNs) {
      skip(ns < kStepNs ? ns : kStepNs);
      if (!await_looks()) return false;
    }
    return true;
  }

 private:
  struct State {
    std::atomic<int64_t> stands_at_ns = -1, ahead_ns = 0, looks = 0;
  };
  State* state_;
};

}  // namespace lockstep::test_support
