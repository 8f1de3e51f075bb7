// Begins the last save before the allocation ends, where nobody else says that it does.
//
//   LastSave   when to ask how long the allocation lasts, and when the save has to begin. Pure.
//   EndWatch   asks, on a thread of its own: the answer may take seconds
//
// The node that coordinates asks when it begins to, then each ten minutes, as limits are moved and
// maintenance is announced, and more often near the end.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>

#include "base/clock.h"
#include "base/task_thread.h"

namespace lockstep::launcher {

// Seconds until the allocation ends. None: nobody knows, or it does not.
using AskTimeLeft = std::function<std::optional<int64_t>()>;

// Thread: one. Time: monotonic nanoseconds.
class LastSave {
 public:
  static constexpr int64_t kAskNs = 600'000'000'000, kAskNearTheEndNs = 5'000'000'000;

  // `grace_s`: what a save may take (launcher.grace_seconds).
  explicit LastSave(double grace_s) : grace_ns_(static_cast<int64_t>(grace_s * 1e9)) {}

  // True when it is time to ask; that counts as asked.
  bool asks(int64_t now_ns);
  // An answer that came. Without one the last answer holds.
  void note_end(int64_t ends_ns) { begins_ns_ = ends_ns - grace_ns_; }
  // True once, when the save has to begin.
  bool is_due(int64_t now_ns);

 private:
  const int64_t grace_ns_;
  std::optional<int64_t> begins_ns_;
  int64_t next_ask_ns_ = INT64_MIN;
  bool said_ = false;
};

// Borrows the clock. Thread: one.
class EndWatch {
 public:
  EndWatch(Clock& clock, AskTimeLeft ask, double grace_s)
      : clock_(clock), ask_(std::move(ask)), last_save_(grace_s) {}

  // True once, when the last save has to begin. Never waits.
  bool last_save_is_due();

 private:
  Clock& clock_;
  const AskTimeLeft ask_;
  LastSave last_save_;
  std::mutex mutex_;
  std::optional<int64_t> ends_ns_;  // guarded: the answer that came
  TaskThread questions_;            // the last member: it ends first
};

}  // namespace lockstep::launcher
