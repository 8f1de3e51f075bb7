// The clocks of a step's prediction (step_time.h). Pure.
//
//   host     launches kernels and starts collectives, one after the other; a wait stops it
//   device   computes kernels in order, none before it was launched
//   link     carries collectives one at a time, none before what the device was given ahead of it
//
// A phase's time is by how much it moves the later of host and device, so that the phases sum to
// the step. On a CPU all three are one: what is copied is not computed meanwhile.
#pragma once

#include <array>

#include "layout/stage_work.h"

namespace lockstep::layout {

enum class StepPhase {
  kForward,
  kLoss,       // forward and backward of the head
  kRecompute,  // forward again, of checkpointed blocks
  kBackward,
  kGatherWait,    // for parameters
  kExchangeWait,  // for gradients
  kFold,          // sums of slots
  kNorm,          // last sums, squares of tiles, and their exchange
  kUpdate,        // AdamW, Muon, and the copy in bf16
  kOther,         // what ranks tell each other once a step
  kCount,
};
inline constexpr size_t kStepPhases = static_cast<size_t>(StepPhase::kCount);
const char* name_of(StepPhase phase);

struct PhaseTime {
  double seconds = 0;
  double flops = 0, bytes = 0;  // of its kernels
  int64_t launches = 0;
};

using StepPhases = std::array<PhaseTime, kStepPhases>;

// How long a collective takes, and what rank 0 of it receives from its node and from others.
struct Transfer {
  double seconds = 0, near_bytes = 0, far_bytes = 0;
};

class StepClocks {
 public:
  explicit StepClocks(const DeviceRates& rates) : rates_(rates) {}

  // Kernels that the host launches now.
  void compute(StepPhase phase, const Operations& ops);
  // A collective that starts after what the device was given; the time when it is done. On a CPU
  // it is done now, and `phase` has its time.
  double start(StepPhase phase, const Transfer& transfer);
  // The host waits: for a collective; for all that the device was given; for something else.
  void wait_until(StepPhase phase, double time);
  void wait_for_device(StepPhase phase) { wait_until(phase, device_); }
  void wait(StepPhase phase, double seconds) { wait_until(phase, now() + seconds); }

  const StepPhases& phases() const { return phases_; }
  const Transfer& received() const { return received_; }  // of all collectives

 private:
  double now() const { return std::max(host_, device_); }
  template <typename Act>
  void timed(StepPhase phase, Act&& act) {
    const double before = now();
    act();
    phases_[static_cast<size_t>(phase)].seconds += now() - before;
  }

  const DeviceRates& rates_;
  StepPhases phases_;
  Transfer received_;
  double host_ = 0, device_ = 0, link_ = 0;
};

}  // namespace lockstep::layout
