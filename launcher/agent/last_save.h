// Begins the last save before the allocation ends, where nobody else says that it does.
//
//   LastSave   when to ask how long the allocation lasts, and when the save has to begin. Pure.
//   EndWatch   asks, on a thread of its own: the answer may take seconds
//
// The node that coordinates asks when it begins to, then each ten minutes, as limits are moved and
// maintenance is announced, and more often near the end, or where no answer came.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>

#include "base/clock.h"
#include "base/result.h"
#include "base/task_thread.h"

namespace lockstep::launcher {

// Seconds until the allocation ends; none: nothing ends it. Errors: nobody knows.
using AskTimeLeft = std::function<Result<std::optional<int64_t>>()>;

// Thread: one. Time: monotonic nanoseconds.
class LastSave {
 public:
  static constexpr int64_t kAskNs = 600'000'000'000, kAskNearTheEndNs = 5'000'000'000;
  static constexpr int64_t kUnansweredNs = 30'000'000'000;
  struct Answer {
    std::optional<int64_t> ends_ns;  // none: nothing ends the allocation
  };

  // `grace_s`: what a save may take (launcher.grace_seconds). Of an allocation that is short, from
  // `starts_ns` on, a save gets half at most: there would be no steps before it.
  LastSave(double grace_s, int64_t starts_ns)
      : grace_ns_(static_cast<int64_t>(grace_s * 1e9)), starts_ns_(starts_ns) {}

  // True when it is time to ask; that counts as asked. Never again once the save has begun.
  bool asks(int64_t now_ns);
  // What is known from here on. Without an answer the last one holds.
  void note(int64_t now_ns, Answer answer);
  // True once, when the save has to begin.
  bool is_due(int64_t now_ns);
  // What the save gets instead of its grace, in an allocation that is short; else none.
  std::optional<int64_t> cut_grace_ns() const;

 private:
  std::optional<int64_t> begins_ns() const;
  int64_t pause_ns(int64_t now_ns, int64_t most_ns) const;

  const int64_t grace_ns_, starts_ns_;
  std::optional<int64_t> ends_ns_;
  int64_t next_ask_ns_ = INT64_MIN;
  bool said_ = false;
};

// Borrows the clock. Thread: one.
class EndWatch {
 public:
  EndWatch(Clock& clock, AskTimeLeft ask, double grace_s)
      : clock_(clock), ask_(std::move(ask)), last_save_(grace_s, clock.monotonic_ns()) {}

  // True once, when the last save has to begin. Never waits.
  bool last_save_is_due();

 private:
  void note(int64_t now_ns, LastSave::Answer answer);

  Clock& clock_;
  const AskTimeLeft ask_;
  LastSave last_save_;
  bool warned_ = false;  // of a grace that is cut
  std::mutex mutex_;
  std::optional<LastSave::Answer> answer_;  // guarded: the one that came
  TaskThread questions_;                    // the last member: it ends first
};

}  // namespace lockstep::launcher
