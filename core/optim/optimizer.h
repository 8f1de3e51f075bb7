// The update of a step: what this rank holds of the trained units' state takes the gradient in.
// AdamW goes element by element, and rounds moments that are kept in bf16 by bits of each
// parameter and step; Muon, where the config says so, by whole matrices (muon.h).
// Borrows config, units, groups and pools. Thread: the training thread.
#pragma once

#include <span>
#include <vector>

#include "config/config.h"
#include "core/audit/unit_digests.h"
#include "core/kernels/adamw_kernels.h"
#include "core/optim/muon.h"

namespace lockstep::core {

class Optimizer {
 public:
  // `units`: those that are trained, in model order; `digests`: of them.
  Optimizer(const Config& config, std::vector<Unit*> units, UnitDigests digests,
            const Strategy& strategy, const Groups& groups, Pools& pools);

  // `sums`: by unit, the gradient sum over the owned tiles, scaled, before it is multiplied by
  // `clip`. Where the state lies on a device, digests are taken there, of weights and sums as they
  // are now, for the update that follows; on the host the update takes them.
  void begin_digests(const std::vector<at::Tensor>& sums);
  // Step `step` (1-based). Collective. Errors: those of Pending::wait.
  Result<StepDigests> update(int64_t step, double lr, double clip,
                             const std::vector<at::Tensor>& sums);

 private:
  // The gradient sums of all that is held, a unit after the other.
  class WholeSums;
  Result<void> update_wave(const layout::MuonWave& wave, WholeSums& sums, const AdamWStep& step,
                           const MuonRate& rate);
  void update_unit(size_t unit, const at::Tensor& grad, const AdamWStep& step);
  template <typename Moment>
  void update_adams(size_t unit, const Segment& segment, int64_t first, int64_t n,
                    const float* grad, const AdamWStep& step, std::vector<AdamWRun<Moment>>& due);
  // In one launch. Their gradients are still there.
  void update_due(const AdamWStep& step);
  void read_digests();
  Result<StepDigests> share_digests();

  const Config& config_;
  std::vector<Unit*> units_;
  UnitDigests digests_;                             // of the step
  at::Tensor device_digests_;                       // by owned segment: weights, then gradients
  std::vector<std::vector<uint64_t>> moment_keys_;  // by unit and param: MomentDraw's
  Strategy strategy_;
  Groups groups_;
  Muon muon_;
  // On a device, what AdamW is to update: of a unit, or, where all sums are there at once, of all.
  std::vector<AdamWRun<float>> due_;
  std::vector<AdamWRun<Bf16>> due_bf16_;
};

}  // namespace lockstep::core
