#include "launcher/agent/last_save.h"

#include <utility>

#include "base/log.h"

namespace lockstep::launcher {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;

}  // namespace

std::optional<int64_t> LastSave::cut_grace_ns() const {
  if (!ends_ns_) return std::nullopt;
  const int64_t half_ns = std::max<int64_t>(0, (*ends_ns_ - starts_ns_) / 2);
  return half_ns < grace_ns_ ? std::optional(half_ns) : std::nullopt;
}

std::optional<int64_t> LastSave::begins_ns() const {
  if (!ends_ns_) return std::nullopt;
  return *ends_ns_ - cut_grace_ns().value_or(grace_ns_);
}

// Until the next question: half of what is left until the save, within limits.
int64_t LastSave::pause_ns(int64_t now_ns, int64_t most_ns) const {
  const auto begins = begins_ns();
  return begins ? std::clamp((*begins - now_ns) / 2, kAskNearTheEndNs, most_ns) : most_ns;
}

bool LastSave::asks(int64_t now_ns) {
  if (said_ || now_ns < next_ask_ns_) return false;
  next_ask_ns_ = now_ns + pause_ns(now_ns, kUnansweredNs);
  return true;
}

void LastSave::note(int64_t now_ns, Answer answer) {
  ends_ns_ = answer.ends_ns;
  next_ask_ns_ = now_ns + pause_ns(now_ns, kAskNs);
}

bool LastSave::is_due(int64_t now_ns) {
  const auto begins = begins_ns();
  if (said_ || !begins || now_ns < *begins) return false;
  return said_ = true;
}

bool EndWatch::last_save_is_due() {
  const int64_t now_ns = clock_.monotonic_ns();
  if (last_save_.asks(now_ns))
    questions_.post_latest("time left", [this] {
      constexpr int64_t kMostSeconds = int64_t{1} << 31;
      const auto left_s = ask_();
      if (!left_s) return;
      LastSave::Answer answer;
      if (const auto& left = left_s.value())
        answer.ends_ns = clock_.monotonic_ns() + std::min(*left, kMostSeconds) * kSecondNs;
      const std::lock_guard lock(mutex_);
      answer_ = answer;
    });
  std::optional<LastSave::Answer> answer;
  {
    const std::lock_guard lock(mutex_);
    answer = std::exchange(answer_, std::nullopt);
  }
  if (answer) note(now_ns, *answer);
  return last_save_.is_due(now_ns);
}

void EndWatch::note(int64_t now_ns, LastSave::Answer answer) {
  last_save_.note(now_ns, answer);
  const auto cut_ns = last_save_.cut_grace_ns();
  if (!cut_ns || std::exchange(warned_, true)) return;
  log_warning(
      "the allocation is shorter than launcher.grace_seconds allows for: the last save will begin ",
      *cut_ns / kSecondNs, " s before the allocation ends");
}

}  // namespace lockstep::launcher
