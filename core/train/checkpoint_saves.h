// The checkpoints of a run as the trainer sees them: when one is due, how those under way ended,
// and what that says to the other ranks. Every method but the accessors is collective, for all
// ranks decide by the same flags. Thread: the training thread. Borrows all but engine and ballot.
#pragma once

#include <memory>
#include <optional>

#include "checkpoint/save/engine.h"
#include "core/train/run_record.h"
#include "core/train/run_start.h"
#include "core/train/state_pieces.h"
#include "core/train/training_step.h"

namespace lockstep::core {

class CheckpointSaves {
 public:
  struct Engine {
    std::unique_ptr<checkpoint::Ballot> ballot;
    std::unique_ptr<checkpoint::Engine> engine;
    static Result<Engine> create(const TrainerEnvironment& env, const RunInputs& inputs,
                                 const RunStart& start, LiveState& state);
  };
  // `record`: rank 0's, else null.
  CheckpointSaves(Engine engine, const TrainerEnvironment& env, const RunInputs& inputs,
                  int64_t saved_step, TrainingStep& step, LiveState& live, RunRecord* record);

  // Adds this rank's words, of saves that have ended by now.
  void say(RankFlags& flags);
  // Before LiveState::thaw.
  void wait_read() { engine_.engine->wait_read(); }
  void add_stall(double seconds) { stall_of_save_ += seconds; }
  // After the step that `state` is at, of which all ranks said `any`. `must`: it is the run's last,
  // or its best.
  Result<void> save_if_due(const TrainerState& state, bool must, const RankFlags& any);
  // Requires: nothing in flight.
  Result<void> begin_save(const TrainerState& state, bool ephemeral);
  // The copy of the state after `step` that a save makes or has made: checkpoint::Engine's
  // lend_staged. Null: the last save is of another step.
  std::unique_ptr<checkpoint::StateSource> copy_of(int64_t step);
  // True: nothing is in flight on any rank. False: some rank's storage hangs for longer than saves
  // may fail. Errors: communication.
  Result<bool> drain() { return wait_for_saves(most_silent_s_); }
  // Saves `state` unless all ranks know that it is saved, and waits for that. Without a word it is
  // not saved where storage fails or hangs. Errors: communication.
  Result<void> save_and_wait(const TrainerState& state);
  void take_reports();
  // Of this rank's save that failed last, when they did for too long on some rank: `any`. Waits for
  // the one in flight, which says why.
  Error outage(SaveTrouble any);
  // Waits for the save of `state`, the last one, which is tried again while it fails, for as long
  // as outages may last, or until a stop is requested; then the ranks read it back together, and
  // none returns before all have.
  // Errors: kNoSpace; kCorrupt, at every rank; communication.
  Result<void> finish(const TrainerState& state);

  int64_t saved_step() const { return saved_step_; }  // newest one committed
  void set_saved_step(int64_t step) { saved_step_ = step; }
  // The steps since are computed again: what is staged is of none of them.
  void forget_staged() { begun_step_ = -1; }

 private:
  bool busy() const;
  double silent_s();  // for so long storage has not answered the call under way
  // As drain, for a hang of so long.
  Result<bool> wait_for_saves(double most_silent_s);
  // What came of the save of `step`, the last one, once none is in flight: the worst trouble of all
  // ranks, and whether one of them was asked to stop.
  Result<RankFlags> outcome(int64_t step);
  Error unsaved(int64_t step, const RankFlags& any);
  Result<void> read_back();
  bool time_has_come() const;
  SaveTrouble trouble();
  void note(const checkpoint::SaveReport& report);

  Engine engine_;
  TrainerEnvironment env_;
  const Config::Checkpoint& config_;
  TrainingStep& step_;
  LiveState& live_;
  RunRecord* record_;
  const double most_silent_s_;
  int64_t begun_step_ = -1;  // of the last save
  int64_t saved_step_, committed_once_ = 0;
  double stall_of_save_ = 0, saved_at_s_;  // the latter: the clock at the last permanent one
  std::optional<SaveOutage> outage_;
  std::optional<int64_t> call_;  // to storage, that was under way at the last look
  double answered_s_ = 0;        // the clock when it was first seen
  bool said_silent_ = false;
  int64_t last_step_ = -1;            // the one after which training is over, once it is
  std::optional<double> again_at_s_;  // rank 0's clock: for a save that failed on some rank
  checkpoint::SaveReport last_report_;
};

}  // namespace lockstep::core
