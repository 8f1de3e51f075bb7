// What one rank's training thread did when, as a Chrome trace: a JSON file for Perfetto or
// chrome://tracing. A null pointer to a recorder is how tracing is off: it then costs a comparison.
//
//   PhaseTimer (or add) ... PhaseTimer --> publish --> PhaseTimer ...
//
// Time is CLOCK_MONOTONIC's: ranks of one node share it, so their files can be laid side by side.
// Thread: one.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/file_system.h"

namespace lockstep {
inline namespace base {

class TraceRecorder {
 public:
  // `rank` is the process of the trace.
  explicit TraceRecorder(int rank) : rank_(rank) {}

  // A span between two readings of Clock::monotonic_ns. `phase` outlives the recorder; `part`:
  // which one of several, or "".
  void add(const char* phase, std::string_view part, int64_t start_ns, int64_t end_ns);
  // Writes what was added since the last call, and forgets it. Makes the folder. Errors: kIo,
  // kNoSpace.
  Result<void> publish(FileSystem& file_system, const std::filesystem::path& path);

 private:
  struct Span {
    const char* phase;
    std::string part;
    int64_t start_ns, end_ns;
  };
  int rank_;
  std::vector<Span> spans_;
};

// Adds the seconds from construction to destruction to `seconds`, and the span to `trace` where
// there is one.
class PhaseTimer {
 public:
  PhaseTimer(Clock& clock, double& seconds, TraceRecorder* trace, const char* phase,
             std::string_view part = "")
      : clock_(clock),
        seconds_(seconds),
        trace_(trace),
        phase_(phase),
        part_(part),
        start_ns_(clock.monotonic_ns()) {}
  PhaseTimer(const PhaseTimer&) = delete;
  PhaseTimer& operator=(const PhaseTimer&) = delete;
  ~PhaseTimer() {
    const int64_t end_ns = clock_.monotonic_ns();
    seconds_ += static_cast<double>(end_ns - start_ns_) * 1e-9;
    if (trace_ != nullptr) trace_->add(phase_, part_, start_ns_, end_ns);
  }

 private:
  Clock& clock_;
  double& seconds_;
  TraceRecorder* trace_;
  const char* phase_;
  std::string_view part_;
  int64_t start_ns_;
};

}  // namespace base
}  // namespace lockstep
