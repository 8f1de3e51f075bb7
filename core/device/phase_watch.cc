#include "core/device/phase_watch.h"

#include <algorithm>
#include <exception>
#include <numeric>
#include <utility>

#include "core/device/devices.h"

namespace lockstep::core {
namespace {

// In metrics, and in traces.
struct Names {
  const char *metric, *span;
};

const Names& names_of(StepPhase phase) {
  static constexpr Names kNames[kStepPhases] = {{"data_wait", "data wait"},
                                                {"gather_wait", "gather"},
                                                {"forward", "forward"},
                                                {"backward", "backward"},
                                                {"exchange_wait", "exchange"},
                                                {"share_wait", "share losses"},
                                                {"fold_and_norm", "fold"},
                                                {"checkpoint_stall", "checkpoint stall"},
                                                {"update", "update"},
                                                {"audit", "audit"},
                                                {"other", "other"}};
  return kNames[static_cast<size_t>(phase)];
}

double seconds_of(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

}  // namespace

const char* name_of(StepPhase phase) { return names_of(phase).metric; }

double StepPhases::sum() const { return std::accumulate(seconds.begin(), seconds.end(), 0.0); }

void StepPhases::add(const StepPhases& other) {
  for (size_t i = 0; i < kStepPhases; ++i) seconds[i] += other.seconds[i];
}

PhaseWatch::PhaseWatch(at::Device device)
    : device_(device_of(device)), on_device_(!device.is_cpu()), clock_(system_clock()) {}

void PhaseWatch::begin_step() {
  in_step_ = true;
  if (on_device_) return leave_mark(StepPhase::kOther);
  phases_ = {};
  step_start_ns_ = clock_.monotonic_ns();
}

StepPhases PhaseWatch::end_step() {
  in_step_ = false;
  if (on_device_) {
    leave_mark(StepPhase::kCount);
    read_marks();
  } else {
    phases_[StepPhase::kOther] = seconds_of(clock_.monotonic_ns() - step_start_ns_) - phases_.sum();
  }
  return std::exchange(phases_, {});
}

void PhaseWatch::leave_mark(StepPhase next) {
  marks_.push_back({device_.current_stream()->mark_time(), next});
}

// Those before one that is reached are reached.
void PhaseWatch::read_marks() {
  const auto last =
      std::find_if(marks_.rbegin(), marks_.rend(), [](const Mark& m) { return m.mark->reached(); });
  for (auto unread = marks_.rend() - last; unread > 1; --unread) {
    const Mark from = std::move(marks_.front());
    marks_.pop_front();
    const double seconds = marks_.front().mark->seconds_since(*from.mark);
    if (from.next != StepPhase::kCount) phases_[from.next] += seconds;
  }
}

PhaseSpan::PhaseSpan(PhaseWatch& watch, StepPhase phase, std::string_view part)
    : watch_(watch),
      phase_(phase),
      part_(part),
      inner_(std::exchange(watch.in_span_, true)),
      exceptions_(std::uncaught_exceptions()) {
  if (inner_) return;
  start_ns_ = watch_.clock_.monotonic_ns();
  watch_.device_.enter_range(names_of(phase_).span, part_);
  if (watch_.on_device_ && watch_.in_step_) watch_.leave_mark(phase_);
}

// A device that has failed takes no mark. What it threw is on its way to who handles it, or comes
// again from the next call.
PhaseSpan::~PhaseSpan() {
  if (inner_) return;
  watch_.in_span_ = false;
  if (watch_.on_device_ && watch_.in_step_ && std::uncaught_exceptions() == exceptions_) {
    try {
      watch_.leave_mark(StepPhase::kOther);
    } catch (const std::exception&) {
    }
  }
  watch_.device_.leave_range();
  const int64_t end_ns = watch_.clock_.monotonic_ns();
  if (!watch_.on_device_) watch_.phases_[phase_] += seconds_of(end_ns - start_ns_);
  if (watch_.trace_ != nullptr) watch_.trace_->add(names_of(phase_).span, part_, start_ns_, end_ns);
}

}  // namespace lockstep::core
