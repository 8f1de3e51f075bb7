// Time comes in through a Clock, so that tests and the launcher's simulation can bring their own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep {
inline namespace base {

inline constexpr int64_t kNsPerMs = 1'000'000;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual int64_t monotonic_ns() = 0;              // never goes back
  virtual int64_t unix_ns() = 0;                   // wall clock
  virtual void sleep_ns(int64_t duration_ns) = 0;  // may return early only in a test clock
  double monotonic_s() { return static_cast<double>(monotonic_ns()) * 1e-9; }
};

// The machine's clocks (CLOCK_MONOTONIC, CLOCK_REALTIME). One for the process.
Clock& system_clock();

// "2026-11-21T10:57:03Z"
std::string utc_text(int64_t unix_ns);
// Seconds since 1970 from that form; empty when it is another.
std::optional<int64_t> utc_seconds(const std::string& utc);

}  // namespace base
}  // namespace lockstep
