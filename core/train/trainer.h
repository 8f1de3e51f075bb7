// One rank of a training run, from its config to the last step. Every method is collective.
//
//   create: inputs -> model -> state (initial or the newest checkpoint) -> saves, loader, record
//   run:    steps, validation, asynchronous saves, until the last step, a request to stop, or as
//           many validations in a row without gain as validation.patience says
//
// A step whose loss or gradient norm is not finite is skipped, ends the run, or takes it back
// (not_finite.h). To go back: 1. every save in flight ends; 2. the step joins the skip list; 3. the
// newest committed checkpoint, or the initial weights, are loaded in this process; 4. the loader
// starts behind it. The steps that follow are done again, and repeat their logged losses; the
// listed one consumes its slots and changes nothing. A kill anywhere in between loses at most the
// list: the step is then met again.
#pragma once

#include <memory>
#include <optional>

#include "base/trace_recorder.h"
#include "core/train/checkpoint_saves.h"
#include "core/train/run_audit.h"
#include "core/train/run_inputs.h"
#include "core/train/run_record.h"
#include "core/train/run_start.h"
#include "core/train/snapshots.h"
#include "core/train/training_step.h"
#include "data/loader/slot_loader.h"

namespace lockstep::core {

class Trainer {
 public:
  // Errors: kConfig, kNotFound, kCorrupt, communication.
  static Result<std::unique_ptr<Trainer>> create(const Config& config,
                                                 TrainerEnvironment environment);
  // Ok when the last step is done and saved. kChanged: a planned change ends the generation, and
  // the next one goes on with the step after this one [P25]. kAborted: stopped on request, saved.
  // kConfig: loss or gradient norm not finite, and training.nan_policy stops.
  Result<void> run();

 private:
  // In the order in which they are made; each may borrow those before it.
  struct Parts {
    TrainerEnvironment env;
    std::unique_ptr<RunInputs> inputs;
    std::unique_ptr<TrainingStep> step;
    std::unique_ptr<RunStart> start;
    std::unique_ptr<LiveState> live;  // empty, and so are the next two, where nothing is saved
    CheckpointSaves::Engine engine;
    std::unique_ptr<Snapshots> snapshots;
    std::unique_ptr<data::SlotLoader> loader;
    std::unique_ptr<RunRecord> record;  // rank 0
  };
  explicit Trainer(Parts parts);
  Result<void> one_step(bool& stop);
  Result<void> timed_step(TraceRecorder* trace, bool& stop);
  Result<void> compute(StepRecord& record);
  void before_update(int64_t step);
  RankFlags my_flags();
  Result<void> pass_over(StepRecord& record);
  Result<void> after_step(StepRecord& record, TraceRecorder* trace, bool& stop);
  bool is_last(int64_t step) const;
  Result<std::optional<double>> validate_if_due(int64_t step, bool& stop);
  Result<void> validate_what_was_left_out(bool& stop);
  bool add_validation(double loss);
  Result<void> finish(bool stopped);
  Result<void> end_for_change(const RankFlags& any);
  Result<void> roll_back(const StepRecord& record);
  Result<void> stop_not_finite(const StepRecord& record, const std::string& advice);

  TrainerEnvironment env_;
  std::unique_ptr<RunInputs> inputs_;
  const Config& config_;  // of inputs_
  std::unique_ptr<TrainingStep> step_;
  std::unique_ptr<RunStart> start_;
  TrainerState state_;
  std::unique_ptr<LiveState> live_;         // null: nothing is saved
  std::unique_ptr<RunRecord> record_;       // rank 0
  std::unique_ptr<CheckpointSaves> saves_;  // null: nothing is saved
  std::unique_ptr<Snapshots> snapshots_;
  std::unique_ptr<data::SlotLoader> loader_;
  RunAudit audit_;
  std::optional<TraceRecorder> traces_;  // where profiling is on
  int64_t rollbacks_ = 0;
  bool cannot_change_ = false;  // a planned change failed: its state could not be made safe
};

}  // namespace lockstep::core
