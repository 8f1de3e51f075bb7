// Muon's part of an update, a wave of matrices at a time (layout/muon_plan.h, whose rules the
// methods cite): what this rank owns of their directions goes to the matrices' homes, is
// orthogonalized there, and comes back. Nothing is added on the way, and a home works on whole
// matrices, so neither the number of ranks nor the strategy moves a bit.
//
//   begin(wave) -> direction written, unit by unit -> exchange -> apply, unit by unit -> end
//
// Borrows units, groups and pool. Thread: the training thread.
#pragma once

#include <c10/util/BFloat16.h>

#include <vector>

#include "core/kernels/muon_kernels.h"
#include "core/sharding/unit.h"
#include "layout/muon_plan.h"

namespace lockstep::core {

// What the kernels need of a step.
struct MuonRate {
  double lr, momentum, weight_decay, clip;
};

class Muon {
 public:
  // `units`: those that are trained, in model order. Without Strategy::muon the waves are there, of
  // a unit each, and nothing is in them.
  Muon(std::vector<Unit*> units, const Strategy& strategy, const Groups& groups, BufferPool& pool);

  const std::vector<layout::MuonWave>& waves() const { return waves_; }

  void begin(const layout::MuonWave& wave, const MuonRate& rate);
  // Held elements [at, at + n) of a matrix of the wave, no padding: their momentum takes the
  // gradient in, and the direction of those that are owned is written. Any thread may call it.
  void take_gradient(size_t unit, int param, int64_t at, const float* grad, int64_t n);
  // Collective. Errors: those of Pending::wait.
  Result<void> exchange();
  // The weights of the wave's matrices in this unit, all that is held. Collective. Errors: those of
  // Pending::wait.
  Result<void> apply(size_t unit);
  void end();

 private:
  // Rules 3 and 4: what this rank has of a matrix in the buffer of what it sends.
  struct Own {
    int64_t offset = 0;       // in the buffer
    int64_t at = 0, end = 0;  // held elements of the unit
  };
  MuonStep step_of(size_t unit, int param) const;
  const Own& own(size_t unit, int param) const { return own_[unit][static_cast<size_t>(param)]; }
  bool is_empty() const { return wave_->matrices.empty(); }
  at::Tensor room(int64_t elements);
  void orthogonalize_home(const at::Tensor& home);
  Result<at::Tensor> whole_update(size_t unit);

  std::vector<Unit*> units_;
  Strategy strategy_;
  Groups groups_;
  BufferPool& pool_;
  std::vector<layout::MuonWave> waves_;
  std::vector<std::vector<Own>> own_;  // by unit and param
  const layout::MuonWave* wave_ = nullptr;
  MuonRate rate_{};
  at::Tensor sent_;    // where it travels; the directions, and then the updates
  at::Tensor staged_;  // the same where the state lies; sent_ itself where both are one device
};

}  // namespace lockstep::core
