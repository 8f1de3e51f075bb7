#include "layout/step_clocks.h"

namespace lockstep::layout {

const char* name_of(StepPhase phase) {
  constexpr const char* kNames[kStepPhases] = {
      "forward",       "head and loss",       "forward again", "backward", "gather wait",
      "exchange wait", "fold: sums of slots", "gradient norm", "update",   "other"};
  return kNames[static_cast<size_t>(phase)];
}

void StepClocks::compute(StepPhase phase, const Operations& ops) {
  PhaseTime& sums = phases_[static_cast<size_t>(phase)];
  double work = 0;
  int64_t launches = 0;
  for (const Operation& op : ops) {
    const double times = static_cast<double>(op.times);
    work += seconds_of(op, rates_);
    launches += op.times;
    sums.flops += times * op.flops;
    sums.bytes += times * op.bytes;
  }
  sums.launches += launches;
  if (launches == 0) return;
  timed(phase, [&] {
    const double launch = rates_.launch_us * 1e-6;
    device_ = std::max(device_, host_ + launch) + work;
    host_ += static_cast<double>(launches) * launch;
    if (!rates_.gpu()) host_ = device_;
  });
}

double StepClocks::start(StepPhase phase, const Transfer& transfer) {
  received_.near_bytes += transfer.near_bytes;
  received_.far_bytes += transfer.far_bytes;
  received_.seconds += transfer.seconds;
  timed(phase, [&] {
    host_ += rates_.collective_us * 1e-6;
    link_ = std::max({link_, device_, host_}) + transfer.seconds;
    if (!rates_.gpu()) host_ = device_ = link_;
  });
  return link_;
}

void StepClocks::wait_until(StepPhase phase, double time) {
  timed(phase, [&] { host_ = std::max(host_, time); });
}

}  // namespace lockstep::layout
