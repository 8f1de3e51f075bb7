// The explicit training schedule of a slot, no hooks (docs/ARCHITECTURE.md):
//
//   forward   for stage i: prefetch gather(i+1); wait gather(i); x = forward(i, x); release(i)
//   loss      forward and backward of the head at once
//   backward  for stage i, last to first: prefetch gather(i-1); wait gather(i); dx = backward(i);
//             release(i); exchange(i): it travels while the next stage computes, then is folded
//
// A rank without a slot in a round takes part in the same collectives and computes nothing.
// Borrows units, stages and clock. Thread: the training thread.
#pragma once

#include <optional>
#include <vector>

#include "base/clock.h"
#include "core/sharding/stage.h"

namespace lockstep::core {

// Seconds of one step spent in each phase, on this rank.
struct PhaseTimes {
  double gather_wait = 0, forward = 0, backward = 0, exchange_wait = 0;
};

class Schedule {
 public:
  // `parts`: by unit of the model.
  Schedule(std::vector<UnitPart> parts, StageSequence& model, const Strategy& strategy, int rank,
           int world_size);

  // One round: this rank's slot (none: idle), `active` ranks compute one. Collective. Errors:
  // Pending::wait's.
  Result<SlotLoss> train_slot(const std::optional<SlotInput>& slot, int active);
  // Waits for exchanges under way; before the folds are read. Collective.
  Result<void> finish_exchanges();
  // Forward and loss only. Collective.
  Result<SlotLoss> evaluate_slot(const std::optional<SlotInput>& slot);
  // Forward of the stages before the loss, for generation; the head's units are gathered on return.
  Result<at::Tensor> forward_only(const SlotInput& slot);
  PhaseTimes take_times() { return std::exchange(times_, PhaseTimes{}); }

 private:
  // The gathers of a round in order: which units each item needs.
  using Plan = std::vector<std::vector<int>>;
  Plan make_plan(bool train) const;
  Result<void> enter(const Plan& plan, size_t item, bool prefetch);
  void leave(const Plan& plan, size_t item);
  Result<void> exchange(const std::vector<int>& finished, int active);
  std::vector<UnitPart> pick(const std::vector<int>& indices) const;
  Result<at::Tensor> run_forward(const Plan& plan, const std::optional<SlotInput>& slot, bool keep);

  std::vector<UnitPart> parts_;
  StageSequence& model_;
  Strategy strategy_;
  int rank_, world_size_;
  Plan train_plan_, forward_plan_;
  std::vector<int> travelling_;  // units whose exchange is under way, oldest first
  PhaseTimes times_;
};

}  // namespace lockstep::core
