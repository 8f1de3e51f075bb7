// What a run leaves behind, written by rank 0: run_args.json, metrics.jsonl, metrics.json,
// TensorBoard events and the console line. metrics.jsonl is appended to across restarts: a redone
// step is written again, and its loss must repeat the logged loss_hex; a mismatch is reported at
// once. A full disk here is a warning, never the end of the training. While the folder's storage
// hangs, lines wait for it and training does not. Thread: the training thread.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/file_system.h"
#include "base/task_thread.h"
#include "checkpoint/save/engine.h"
#include "config/config.h"
#include "core/train/snapshots.h"
#include "core/train/step_log.h"
#include "core/train/tensorboard_writer.h"
#include "core/train/training_step.h"
#include "data/loader/data_history.h"
#include "layout/model_spec.h"

namespace lockstep::core {

struct StepRecord {
  int64_t step = 0;
  StepOutcome outcome;
  std::string skipped;  // why there was no update; "": there was one
  WireBytes wire;       // received by this rank from others during the step
  StepPhases phases;    // this rank's
  double lr = 0, validation_s = 0;
  std::optional<double> validation_loss;
  // On a device, its own (core/device/phase_watch.h).
  double step_time_s() const { return phases.sum(); }
};

class RunRecord {
 public:
  struct Options {
    int world_size = 1;
    int64_t generation = 1;
    std::string identity_hash, device;
    std::string transport;  // transport_name(), or "none" of a single rank
    std::vector<std::string> identity;
    std::ostream* console = nullptr;  // for the lines people watch
  };
  // Reads what earlier generations wrote, and publishes run_args.json; later where the storage does
  // not answer. Errors: as StepLog::open.
  static Result<std::unique_ptr<RunRecord>> create(FileSystem& file_system, Clock& clock,
                                                   const Config& config,
                                                   const layout::ModelSpec& spec, Options options);
  void add_step(const StepRecord& record);
  // Of a step that is logged already, without it: for TensorBoard; metrics.jsonl stays as it is.
  void add_late_validation(int64_t step, double loss);
  // Seconds after the step in which a save was begun, or waited for.
  void add_begun_save(double seconds) { begun_save_s_ += seconds; }
  void add_save(const checkpoint::SaveReport& report, double stall_s);
  void add_skipped_save() { ++skipped_saves_; }
  void set_snapshots(const Snapshots::Totals& totals) { snapshots_ = totals; }
  // training.nan_policy rollback: steps left out, and times that this process went back.
  void set_skip_list(std::vector<int64_t> steps, int64_t rollbacks);
  // Of all of the run, the stretch that is under way last.
  void set_data(std::vector<data::DataStretch> stretches) { data_ = std::move(stretches); }
  // Publishes metrics.json; `finished`: the run reached its last step.
  void publish_metrics(bool finished);
  // The same, and returns when all is written.
  void finish(bool finished);
  // Seconds a step of this process by phase, for people.
  std::string phase_table() const;

 private:
  RunRecord(FileSystem& file_system, Clock& clock, const Config& config,
            const layout::ModelSpec& spec, Options options);
  Result<void> open_files();
  bool has_files();
  void add_line(LoggedStep logged, const std::string& line);
  nlohmann::ordered_json of_history(bool finished, const std::vector<data::DataStretch>& data);
  void write_step(const StepRecord& record, LoggedStep logged, std::string line);
  std::string console_line(const StepRecord& record, double tps, double step_s) const;
  std::vector<Scalar> scalars_of(const StepRecord& record, double tps) const;
  void add_scalars(int64_t step, const std::vector<Scalar>& scalars);
  std::filesystem::path folder() const { return config_.dump_folder(); }
  double tflops(double tokens_per_s_per_rank) const;
  std::vector<std::pair<const char*, double>> phase_means() const;  // seconds a step

  FileSystem& file_system_;
  Clock& clock_;
  const Config& config_;
  const layout::ModelSpec& spec_;
  Options options_;
  // Touched by tasks of writes_ alone.
  std::unique_ptr<StepLog> steps_;  // null: it could not be opened
  std::unique_ptr<TensorboardWriter> tensorboard_;
  int64_t mismatches_ = 0, redone_ = 0;
  bool said_closed_ = false;

  int64_t skipped_saves_ = 0, committed_saves_ = 0, failed_saves_ = 0;
  double stall_s_ = 0, save_s_ = 0, save_bytes_ = 0, stored_bytes_ = 0;
  std::optional<Snapshots::Totals> snapshots_;
  double window_tokens_ = 0, window_s_ = 0;  // since the last console line
  StepPhases phase_sums_;
  double validation_sum_s_ = 0, begun_save_s_ = 0;
  WireBytes wire_sum_;
  int64_t steps_here_ = 0, rollbacks_ = 0, left_out_ = 0;
  std::vector<int64_t> skip_list_;
  std::vector<data::DataStretch> data_;
  // Writes to the folder and the console. The last member: it ends first, and not before what hangs
  // is back, so that nothing is written into files that a later generation has taken over.
  TaskThread writes_;
};

}  // namespace lockstep::core
