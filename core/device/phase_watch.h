// Where the time of a step goes, by phase.
//
//   begin_step -> PhaseSpan … PhaseSpan -> end_step -> begin_step …
//
// On the CPU a phase lasts as long as its spans do, by the host's clock. A device does later what a
// span gives it. There a phase is measured where it is done:
// 1. A span leaves a mark in the current stream where it begins, and one where it ends; so does a
//    step. The time between two marks that follow each other is that of the phase which began at
//    the first of them.
// 2. end_step waits for nothing: it reads the marks that the device has reached. What is behind the
//    step's last wait (the update) counts in the next step.
// What lies between two spans of a step is kOther; what lies between two steps counts nowhere. So
// the phases sum to the step: on a device to one that begins where the last reading ended.
// Thread: the training thread. Borrows the trace.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <string_view>

#include "base/trace_recorder.h"
#include "core/device/device.h"

namespace lockstep::core {

enum class StepPhase : uint8_t {
  kDataWait,
  kGatherWait,
  kForward,
  kBackward,
  kExchangeWait,
  kShareWait,
  kFold,
  kStall,  // by a save
  kUpdate,
  kAudit,
  kOther,
  kCount,
};
inline constexpr size_t kStepPhases = static_cast<size_t>(StepPhase::kCount);
const char* name_of(StepPhase phase);  // in metrics.jsonl

// Seconds by phase.
struct StepPhases {
  std::array<double, kStepPhases> seconds{};
  double& operator[](StepPhase phase) { return seconds[static_cast<size_t>(phase)]; }
  double operator[](StepPhase phase) const { return seconds[static_cast<size_t>(phase)]; }
  double sum() const;
  void add(const StepPhases& other);
};

class PhaseWatch {
 public:
  explicit PhaseWatch(at::Device device);
  // Spans go there, too, as the host's thread went through them; null: nowhere.
  void set_trace(TraceRecorder* trace) { trace_ = trace; }
  void begin_step();
  StepPhases end_step();

 private:
  friend class PhaseSpan;
  struct Mark {
    std::unique_ptr<TimeMark> mark;
    StepPhase next;  // what begins there; kCount: what counts nowhere
  };
  void leave_mark(StepPhase next);
  void read_marks();

  const Device& device_;
  const bool on_device_;
  Clock& clock_;
  TraceRecorder* trace_ = nullptr;
  bool in_step_ = false, in_span_ = false;
  int64_t step_start_ns_ = 0;
  StepPhases phases_;
  std::deque<Mark> marks_;  // in the order of the stream; the first has been read
};

// One phase, from construction to destruction. Inside another one it is a part of that one. Outside
// of a step it counts nowhere. A profiler of the device sees it (Device::enter_range).
class PhaseSpan {
 public:
  // `part`: which one of several; must outlive the span.
  PhaseSpan(PhaseWatch& watch, StepPhase phase, std::string_view part = "");
  ~PhaseSpan();
  PhaseSpan(const PhaseSpan&) = delete;
  PhaseSpan& operator=(const PhaseSpan&) = delete;

 private:
  PhaseWatch& watch_;
  const StepPhase phase_;
  const std::string_view part_;
  const bool inner_;
  const int exceptions_;  // under way where it began
  int64_t start_ns_ = 0;
};

}  // namespace lockstep::core
