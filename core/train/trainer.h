// One rank of a training run, from its config to the last step. Every method is collective.
//
//   create: data, model, state (initial or the newest checkpoint)
//   run:    steps, validation, asynchronous saves, until the last step or a request to stop
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "base/file_system.h"
#include "base/trace_recorder.h"
#include "checkpoint/save/engine.h"
#include "config/config.h"
#include "core/comm/communicator.h"
#include "core/train/identity.h"
#include "core/train/resume.h"
#include "core/train/run_record.h"
#include "core/train/snapshots.h"
#include "core/train/training_step.h"
#include "data/loader/slot_loader.h"
#include "data/loader/token_dataset.h"
#include "hf/hf_weights.h"
#include "worker_link/progress_page.h"

namespace lockstep::core {

struct TrainerEnvironment {
  FileSystem& file_system;
  Clock& clock;
  Membership& membership;
  ProgressPage& progress;
  const std::atomic<bool>& stop_requested;  // set by a signal
  std::string nonce;                        // of this launch, or ""
  int64_t generation;                       // the launcher's number, or 0
  std::ostream& console;                    // rank 0's lines for people
  std::filesystem::path checkpoint_place;   // the checkpoint folder's absolute path
};

class Trainer {
 public:
  // Errors: kConfig, kNotFound, kCorrupt, communication.
  static Result<std::unique_ptr<Trainer>> create(const Config& config,
                                                 TrainerEnvironment environment);
  // Ok when the last step is done and saved. kAborted: stopped on request, saved. kConfig: loss
  // or gradient norm not finite, and training.nan_policy stops.
  Result<void> run();

 private:
  Trainer(const Config& config, TrainerEnvironment environment)
      : config_(config), env_(environment) {}
  Result<void> open_data();
  Result<void> try_saving();
  Result<void> build_model();
  Result<void> start_from_another();  // checkpoint.initial_load_path
  Result<void> resume();
  void adopt_identity();
  Result<void> start_from_nothing();  // the initial weights
  Result<void> start_engine();
  void start_loader();
  Result<void> start_snapshots();
  Result<void> one_step(bool& stop);
  Result<void> timed_step(TraceRecorder* trace, bool& stop);
  Result<void> compute(StepRecord& record);
  RankFlags my_flags() const;
  bool left_out(int64_t step) const;  // of the skip list
  Result<void> leave_out(StepRecord& record);
  Result<void> after_step(StepRecord& record, TraceRecorder* trace, bool& stop);
  Error too_many_failures(int64_t count) const;
  Result<std::optional<double>> validate_if_due(int64_t step, bool stop);
  Result<void> save_if_due(int64_t step, bool must, const RankFlags& any);
  Result<void> begin_save(bool ephemeral);
  bool save_time() const;
  void take_reports();
  Result<void> finish(int64_t step, bool stopped);
  Result<void> roll_back(const StepRecord& record);
  Result<void> stop_not_finite(const StepRecord& record, const std::string& advice);
  int rank() const { return env_.membership.communicator->rank(); }
  int world_size() const { return env_.membership.communicator->world_size(); }
  bool saving() const;

  Config config_;
  TrainerEnvironment env_;
  data::DataSummary summary_;
  std::unique_ptr<data::TokenDataset> train_data_, validation_data_;
  layout::ModelSpec spec_;
  std::unique_ptr<hf::HfWeights> weights_;  // the initial ones; null: random
  std::unique_ptr<TrainingStep> step_;
  Resumed resumed_;
  Identity identity_;
  std::unique_ptr<checkpoint::Ballot> ballot_;
  std::unique_ptr<checkpoint::Engine> engine_;
  std::optional<MemoryPlace> memory_;  // of snapshots, where they are on
  std::unique_ptr<Snapshots> snapshots_;
  std::unique_ptr<data::SlotLoader> loader_;
  std::unique_ptr<RunRecord> record_;    // rank 0
  std::optional<TraceRecorder> traces_;  // where profiling is on
  TrainerState state_;
  int64_t saved_step_ = -1, failed_in_row_ = 0, committed_once_ = 0, rollbacks_ = 0;
  double stall_of_save_ = 0, saved_at_s_ = 0;  // the latter: the clock at the last permanent one
  checkpoint::SaveReport last_report_;
};

}  // namespace lockstep::core
