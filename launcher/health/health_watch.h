// Reads the counters of a node's hardware again and again, each time on a thread of its own: the
// files of a failing device, and its driver, may hang. A reader that hangs is left alone, with what
// it holds; another look begins only when it is back.
#pragma once

#include <condition_variable>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "launcher/health/health_rules.h"

namespace lockstep::launcher::health {

// Called on one thread at a time. It must hold what it needs: it may outlive whoever calls it.
using ReadCounters = std::function<std::vector<Counter>()>;
// Of Linux and of the NVIDIA driver, where there is one.
ReadCounters hardware_counters(std::filesystem::path sys);

// Borrows the clock. Thread: one.
class HealthWatch {
 public:
  static constexpr int64_t kLookNs = 10'000'000'000;    // between two looks
  static constexpr int64_t kSilentNs = 60'000'000'000;  // a look that takes so long hangs

  HealthWatch(Clock& clock, ReadCounters read) : clock_(clock), read_(std::move(read)) {}
  ~HealthWatch();  // waits for a look that is under way, but not long
  HealthWatch(const HealthWatch&) = delete;
  HealthWatch& operator=(const HealthWatch&) = delete;

  // Begins the next look as soon as none is under way: something has happened here.
  void look_soon() { soon_ = true; }
  // What is known, where it has changed since it was asked last. Never waits.
  std::optional<Health> news();

 private:
  struct Look {
    std::mutex mutex;
    std::condition_variable done;
    std::optional<std::vector<Counter>> counters;  // guarded
  };
  void begin_look();
  std::vector<Counter> take_counters();  // of a look that has ended; none: there is none

  Clock& clock_;
  const ReadCounters read_;
  HealthRules rules_;
  Health last_;
  std::optional<int64_t> began_ns_;  // the last look; none: it has not
  bool soon_ = false;
  std::shared_ptr<Look> look_;  // null: none is under way
  std::thread thread_;          // of the look
};

}  // namespace lockstep::launcher::health
