#include "base/clock.h"

#include <cerrno>
#include <cstdio>
#include <ctime>

namespace lockstep {
inline namespace base {
namespace {

constexpr int64_t kNsPerSecond = 1'000'000'000;

class SystemClock final : public Clock {
 public:
  int64_t monotonic_ns() override { return read(CLOCK_MONOTONIC); }
  int64_t unix_ns() override { return read(CLOCK_REALTIME); }
  void sleep_ns(int64_t duration_ns) override {
    if (duration_ns <= 0) return;
    // An absolute deadline: signals in between do not make the sleep longer.
    const int64_t deadline_ns = monotonic_ns() + duration_ns;
    const timespec deadline{static_cast<time_t>(deadline_ns / kNsPerSecond),
                            static_cast<long>(deadline_ns % kNsPerSecond)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &deadline, nullptr) == EINTR) {
    }
  }

 private:
  static int64_t read(clockid_t id) {
    timespec now{};
    clock_gettime(id, &now);
    return static_cast<int64_t>(now.tv_sec) * kNsPerSecond + now.tv_nsec;
  }
};

}  // namespace

Clock& system_clock() {
  static SystemClock clock;
  return clock;
}

std::string utc_text(int64_t unix_ns) {
  int64_t seconds = unix_ns / kNsPerSecond;
  if (unix_ns % kNsPerSecond < 0) --seconds;
  const time_t time = static_cast<time_t>(seconds);
  std::tm parts{};
  gmtime_r(&time, &parts);
  char buffer[32];
  const size_t length = strftime(buffer, sizeof buffer, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return std::string(buffer, length);
}

std::optional<int64_t> utc_seconds(const std::string& utc) {
  std::tm parts{};
  const char* const end = strptime(utc.c_str(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  if (end == nullptr || *end != '\0') return std::nullopt;
  return static_cast<int64_t>(timegm(&parts));
}

}  // namespace base
}  // namespace lockstep
