// The explicit training schedule of a slot, no hooks (docs/ARCHITECTURE.md):
//
//   forward   for stage i: prefetch gather(i+1); wait gather(i); x = forward(i, x); release(i)
//   loss      forward and backward of the head at once
//   backward  for stage i, last to first: prefetch gather(i-1); wait gather(i); dx = backward(i);
//             release(i); exchange(i): it travels while the next stage computes, then is folded
//
// Stages share a unit where a wrap policy joined theirs: it is gathered for the first of them and
// exchanged after the last. A rank without a slot in a round takes part in the same collectives
// and computes nothing.
// Borrows units, stages and clock. Thread: the training thread.
#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "base/trace_recorder.h"
#include "core/sharding/stage.h"

namespace lockstep::core {

// Seconds of one step spent in each phase, on this rank.
struct PhaseTimes {
  double gather_wait = 0, forward = 0, backward = 0, exchange_wait = 0;
};

class Schedule {
 public:
  // `parts`: by unit of the model.
  Schedule(std::vector<UnitPart> parts, StageSequence& model, const Strategy& strategy,
           const SlotMap& map, int rank);

  // One round: this rank's slot (none: idle). Collective. Errors: Pending::wait's.
  Result<SlotLoss> train_slot(const std::optional<SlotInput>& slot, int64_t round);
  // After the step's last round: waits for exchanges under way and releases what the strategy kept
  // gathered; before the folds are read. Collective.
  Result<void> finish_step();
  // Forward and loss only. Collective.
  Result<SlotLoss> evaluate_slot(const std::optional<SlotInput>& slot);
  // Forward of the stages before the loss, for generation; the head's units are gathered on return.
  Result<at::Tensor> forward_only(const SlotInput& slot);
  // Frees what the strategy kept gathered.
  void release_all();
  // Spans go there too; null: nowhere.
  void set_trace(TraceRecorder* trace) { trace_ = trace; }
  PhaseTimes take_times() { return std::exchange(times_, PhaseTimes{}); }

 private:
  // What happens in order in a round: forward of the stages, the loss, backward.
  struct Item {
    std::vector<UnitPart> parts;  // what the stage computes with
    std::vector<Unit*> gathered;  // what it needs gathered
    std::vector<Unit*> finished;  // whose gradient is complete after it
    const std::string& name() const { return parts.front().spec().name; }
  };
  using Plan = std::vector<Item>;
  Item item_of(const std::vector<int>& parts, bool needs_weights) const;
  Plan make_plan(bool train) const;
  void add_finished(Plan& plan) const;
  Result<void> enter(const Plan& plan, size_t item, bool prefetch);
  void prefetch(const Plan& plan, size_t item);
  void leave(const Plan& plan, size_t item);
  Result<void> exchange(const std::vector<Unit*>& finished, int64_t round);
  Result<void> finish_exchanges();
  PhaseTimer timer(double& seconds, const char* phase, const std::string& part);
  Result<at::Tensor> run_forward(const Plan& plan, const std::optional<SlotInput>& slot, bool keep);
  Result<void> run_backward(const std::optional<SlotInput>& slot, at::Tensor dx, int64_t round);

  std::vector<UnitPart> parts_;
  StageSequence& model_;
  Strategy strategy_;
  SlotMap map_;
  int rank_;
  Plan train_plan_, forward_plan_;
  std::deque<Unit*> travelling_;  // units whose exchange is under way, oldest first
  PhaseTimes times_;
  TraceRecorder* trace_ = nullptr;
};

}  // namespace lockstep::core
