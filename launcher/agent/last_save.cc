#include "launcher/agent/last_save.h"

#include <utility>

namespace lockstep::launcher {

bool LastSave::asks(int64_t now_ns) {
  if (now_ns < next_ask_ns_) return false;
  const int64_t left_ns = begins_ns_ ? *begins_ns_ - now_ns : kAskNs;
  next_ask_ns_ = now_ns + std::clamp(left_ns / 2, kAskNearTheEndNs, kAskNs);
  return true;
}

bool LastSave::is_due(int64_t now_ns) {
  if (said_ || !begins_ns_ || now_ns < *begins_ns_) return false;
  return said_ = true;
}

bool EndWatch::last_save_is_due() {
  const int64_t now_ns = clock_.monotonic_ns();
  if (last_save_.asks(now_ns))
    questions_.post([this] {
      constexpr int64_t kMostSeconds = int64_t{1} << 31;
      const auto left_s = ask_();
      if (!left_s) return;
      const std::lock_guard lock(mutex_);
      ends_ns_ = clock_.monotonic_ns() + std::min(*left_s, kMostSeconds) * 1'000'000'000;
    });
  const std::lock_guard lock(mutex_);
  if (const auto ends_ns = std::exchange(ends_ns_, std::nullopt)) last_save_.note_end(*ends_ns);
  return last_save_.is_due(now_ns);
}

}  // namespace lockstep::launcher
