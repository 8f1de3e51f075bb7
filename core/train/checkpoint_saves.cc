#include "core/train/checkpoint_saves.h"

#include <cmath>

#include "base/check.h"
#include "base/log.h"
#include "checkpoint/ballot/polls.h"
#include "checkpoint/ballot/verdict.h"
#include "checkpoint/load/chunk_reader.h"
#include "checkpoint/save/save_schedule.h"
#include "checkpoint/tools/verify.h"
#include "core/train/agreement.h"
#include "core/train/memory_stats.h"
#include "core/train/store_ballot.h"

namespace lockstep::core {
namespace {

constexpr double kAgain_s = 10;  // from a save that failed to the next one
constexpr int64_t kPause_ns = 500'000'000;
constexpr std::chrono::milliseconds kLook{500};
constexpr double kSay_s = 30;                  // of silent storage
constexpr std::chrono::minutes kReadBack{30};  // for a rank's share of the last save

std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

// A call may stand for so long; at least as long as ranks whose storage answers may wait for votes.
double most_silent_s(const Config::Checkpoint& c, int world_size) {
  const auto poll =
      checkpoint::Polls::patience(world_size, milliseconds_of(c.vote_timeout_seconds));
  return std::max(60 * c.outage_minutes, static_cast<double>(poll.count()) * 1e-3);
}

}  // namespace

Result<CheckpointSaves::Engine> CheckpointSaves::Engine::create(const TrainerEnvironment& env,
                                                                const RunInputs& inputs,
                                                                const RunStart& start,
                                                                LiveState& state) {
  const Config::Checkpoint& c = inputs.config.checkpoint;
  checkpoint::EngineOptions o;
  o.folder = inputs.config.checkpoint_folder();
  o.rank = env.rank();
  o.world_size = env.world_size();
  o.generation = start.resumed.next_generation;
  o.nonce = start.resumed.nonce;
  o.codec = c.codec;
  o.threads = static_cast<int>(c.threads);
  o.nice = static_cast<int>(c.nice);
  o.retention = {.keep_latest_k = c.keep_latest_k,
                 .keep_every = c.keep_every,
                 .keep_minutes = c.keep_minutes,
                 .keep_best = c.keep_best};
  o.ranks_per_file = static_cast<int>(c.ranks_per_file);
  o.node_of_rank = env.membership.node_of_rank;
  o.vote_deadline = milliseconds_of(c.vote_timeout_seconds);
  Engine e;
  e.ballot = std::make_unique<StoreBallot>(*env.membership.store);
  auto engine = checkpoint::Engine::create(o, env.file_system, *e.ballot, env.progress, state);
  if (o.ranks_per_file > 1) {
    const auto agree = [&](const char* key, const Result<void>& mine, double timeout_s) {
      return all_well(*env.membership.store, *env.membership.communicator, key, mine, timeout_s);
    };
    // Nobody waits for a neighbour that has failed, or whose storage takes its time.
    LOCKSTEP_RETURN_IF_ERROR(agree("save/all_ready",
                                   engine.ok() ? Result<void>() : Result<void>(engine.error()),
                                   60.0 * c.outage_minutes));
    const double timeout_s = inputs.config.comm.init_timeout_seconds;
    LOCKSTEP_RETURN_IF_ERROR(agree(
        "save/all_met", engine.value()->meet_neighbours(milliseconds_of(timeout_s)), timeout_s));
  }
  LOCKSTEP_TRY(e.engine, std::move(engine));
  return e;
}

CheckpointSaves::CheckpointSaves(Engine engine, const TrainerEnvironment& env,
                                 const RunInputs& inputs, int64_t saved_step, TrainingStep& step,
                                 LiveState& live, RunRecord* record)
    : engine_(std::move(engine)),
      env_(env),
      config_(inputs.config.checkpoint),
      step_(step),
      live_(live),
      record_(record),
      most_silent_s_(most_silent_s(config_, env.world_size())),
      saved_step_(saved_step),
      saved_at_s_(env.clock.monotonic_s()) {}

void CheckpointSaves::say(RankFlags& flags) {
  take_reports();
  flags.save_busy = busy();
  flags.trouble = trouble();
  flags.save_time = time_has_come();
}

bool CheckpointSaves::busy() const {
  const SavePhase phase = engine_.engine->phase();
  return phase == SavePhase::kStaging || phase == SavePhase::kWriting ||
         phase == SavePhase::kVoting;
}

// One clock decides for all: rank 0's word travels with the step's flags.
bool CheckpointSaves::time_has_come() const {
  if (env_.rank() != 0) return false;
  const double now_s = env_.clock.monotonic_s(), minutes = config_.interval_minutes;
  if (again_at_s_ && now_s >= *again_at_s_) return true;
  return minutes > 0 && now_s - saved_at_s_ >= 60 * minutes;
}

// Of one call: a rank whose storage answers may wait long for votes, or for rank 0's word.
double CheckpointSaves::silent_s() {
  const double now_s = env_.clock.monotonic_s();
  const std::optional<int64_t> call = engine_.engine->call_under_way();
  if (!call || call != call_) {
    call_ = call;
    answered_s_ = now_s;
    if (std::exchange(said_silent_, false)) log_notice("checkpoint storage answers again");
  }
  const double silent = now_s - answered_s_;
  if (silent >= kSay_s && !std::exchange(said_silent_, true))
    log_warning("checkpoint storage has not answered for ", fixed(silent, 0),
                " s; training continues without saves for at most ", fixed(most_silent_s_ / 60, 1),
                " minutes (checkpoint.outage_minutes)");
  return silent;
}

SaveTrouble CheckpointSaves::trouble() {
  if (silent_s() >= most_silent_s_) return SaveTrouble::kTooLong;
  if (!outage_) return SaveTrouble::kNone;
  return trouble_of(*outage_, 60 * config_.outage_minutes, last_report_.code);
}

// `any` is the same on every rank, so all save, or skip, together.
Result<void> CheckpointSaves::save_if_due(const TrainerState& state, bool must,
                                          const RankFlags& any) {
  // Ranks need not agree on how a save ended: one that hears of it late takes it for failed.
  if (any.trouble != SaveTrouble::kNone && !any.save_busy && !again_at_s_)
    again_at_s_ = env_.clock.monotonic_s() + kAgain_s;
  // A save that time asks for waits for the one in flight; it is not skipped.
  const checkpoint::Due due =
      checkpoint::save_due({config_.interval, config_.ephemeral_interval}, state.step, must,
                           any.save_time && !any.save_busy);
  if (due == checkpoint::Due::kNo) return {};
  env_.progress.set_phase(state.step, Phase::kSave);
  const double start = env_.clock.monotonic_s();
  bool writes = any.save_busy;
  if (must || config_.when_busy == WhenBusy::kWait) {
    LOCKSTEP_TRY(const bool idle,
                 wait_for_saves(must ? most_silent_s_ : config_.vote_timeout_seconds));
    writes = !idle;
    if (must && writes) return outage(SaveTrouble::kTooLong);
  }
  if (writes) {
    if (env_.rank() == 0)
      log_warning("the save of step ", state.step,
                  " is skipped: the one before it is still being written");
    if (record_) record_->add_skipped_save();
    return {};
  }
  LOCKSTEP_RETURN_IF_ERROR(begin_save(state, due == checkpoint::Due::kEphemeral));
  stall_of_save_ += env_.clock.monotonic_s() - start;
  return {};
}

Result<void> CheckpointSaves::begin_save(const TrainerState& state, bool ephemeral) {
  if (!ephemeral) saved_at_s_ = env_.clock.monotonic_s();
  again_at_s_.reset();
  live_.freeze();
  LOCKSTEP_CHECK(state.step >= 0 && state.skipped_steps >= 0, "step ", state.step, ", of which ",
                 state.skipped_steps, " had no update");
  begun_step_ = state.step;
  checkpoint::SaveRequest request{state.step, state.step - state.skipped_steps, ephemeral,
                                  state.to_json(), state.audited_step};
  const Validations& said = state.validations;
  if (said.step == state.step && std::isfinite(said.loss)) request.validation_loss = said.loss;
  LOCKSTEP_TRY(const bool begun, engine_.engine->begin_save(std::move(request)));
  if (!begun)
    return Error{Code::kBug, text("the checkpoint engine was busy at step ", state.step,
                                  " and said it was idle")};
  return {};
}

std::unique_ptr<checkpoint::StateSource> CheckpointSaves::copy_of(int64_t step) {
  return step == begun_step_ ? engine_.engine->lend_staged() : nullptr;
}

// Ranks need not agree on how long a save takes, or hangs; a collective would not wait so long for
// one that stays behind. So all look together, again and again.
Result<bool> CheckpointSaves::wait_for_saves(double most_silent_s) {
  for (;;) {
    RankFlags mine;
    mine.save_busy = busy();
    take_reports();
    if (silent_s() >= most_silent_s) mine.trouble = SaveTrouble::kTooLong;
    LOCKSTEP_TRY(const RankFlags any, step_.share_flags(mine));
    if (!any.save_busy) return true;
    if (any.trouble >= SaveTrouble::kTooLong) return false;
    env_.progress.touch();
    engine_.engine->drain_for(kLook);
  }
}

Result<RankFlags> CheckpointSaves::outcome(int64_t step) {
  LOCKSTEP_TRY(const bool idle, drain());
  RankFlags mine{.stop = env_.stop_requested.load()};
  if (saved_step_ != step) {
    mine.trouble = std::max(trouble(), SaveTrouble::kFailed);
    if (mine.stop && last_report_.code == Code::kNoSpace) mine.trouble = SaveTrouble::kDiskFull;
  }
  LOCKSTEP_TRY(RankFlags any, step_.share_flags(mine));
  if (!idle) any.trouble = SaveTrouble::kTooLong;
  return any;
}

// Why the run ends although its state after `step` is not saved.
Error CheckpointSaves::unsaved(int64_t step, const RankFlags& any) {
  const Code code = end_code(any.trouble);
  return {code, text(any.stop ? "a stop was requested, and one save was tried: " : "",
                     "the final save of step ", step, " failed",
                     saved_step_ == step ? " on another rank"
                     : busy()            ? ": storage does not answer"
                                         : ": " + last_report_.error,
                     saved_step_ > 0 ? text("; the newest checkpoint is of step ", saved_step_,
                                            ", and the steps after it will be computed again")
                                     : std::string("; there is no checkpoint yet"),
                     code == Code::kNoSpace ? ": free some space, or raise the limit, and " : ": ",
                     "run the same command to resume")};
}

Result<void> CheckpointSaves::save_and_wait(const TrainerState& state) {
  LOCKSTEP_TRY(const RankFlags before, outcome(state.step));
  if (before.trouble != SaveTrouble::kFailed) return {};
  LOCKSTEP_RETURN_IF_ERROR(begin_save(state, /*ephemeral=*/false));
  LOCKSTEP_RETURN_IF_ERROR(drain());
  return {};
}

void CheckpointSaves::take_reports() {
  for (checkpoint::SaveReport& report : engine_.engine->take_reports()) {
    note(report);
    if (record_) {
      record_->add_save(report, stall_of_save_);
      if (report.committed)
        log_info("Finished saving the checkpoint of step ", report.step, " (",
                 bytes_text(static_cast<uint64_t>(report.raw_bytes)), " -> ",
                 bytes_text(static_cast<uint64_t>(report.stored_bytes)), " on this rank; stall ",
                 fixed(stall_of_save_ * 1e3, 1), " ms; write ", fixed(report.write_s, 3),
                 " s, sync ", fixed(report.sync_s, 3), " s)");
      record_->publish_metrics(false);
    }
    if (report.committed && committed_once_++ == 0)
      log_info("memory ", memory_line("after checkpoint", env_.rank()));
    stall_of_save_ = 0;
    last_report_ = std::move(report);
  }
}

// Counts failures, and says when an outage begins and ends.
void CheckpointSaves::note(const checkpoint::SaveReport& report) {
  if (report.committed) {
    saved_step_ = report.step;
    if (outage_ && env_.rank() == 0)
      log_notice("saves work again, after ", counted(outage_->failures, "failure"), " in ",
                 fixed(env_.clock.monotonic_s() - outage_->since_s, 0), " s");
    outage_.reset();
    return;
  }
  const double now_s = env_.clock.monotonic_s();
  if (!outage_) {
    outage_ = SaveOutage{now_s, now_s, 0};
    if (env_.rank() == 0 && config_.outage_minutes > 0 && report.step != last_step_)
      log_warning("training continues without saves for at most ", config_.outage_minutes,
                  " minutes (checkpoint.outage_minutes); a save is tried every ", kAgain_s, " s");
  }
  outage_->failed_s = now_s;
  ++outage_->failures;
}

Error CheckpointSaves::outage(SaveTrouble any) {
  while (silent_s() < most_silent_s_ && !engine_.engine->drain_for(kLook)) env_.progress.touch();
  take_reports();
  const Code code = end_code(any);
  if (any == SaveTrouble::kTakenOver)
    return {code, text("another run has started in this folder, so this one ends: ",
                       outage_ ? last_report_.error : "another rank was refused to save",
                       ". Give each run its own --job.dump_folder")};
  const std::string here =
      busy()    ? text("; storage has not answered for ", fixed(silent_s(), 0), " s on this rank")
      : outage_ ? text("; the last of ", outage_->failures,
                       " failures on this rank: ", last_report_.error)
                : std::string("; they failed on other ranks");
  return {code, text("saves have failed for longer than checkpoint.outage_minutes = ",
                     config_.outage_minutes, here, "; the newest committed checkpoint is intact: ",
                     code == Code::kNoSpace ? "free some space, or raise the limit, and " : "",
                     "run the same command to resume")};
}

Result<void> CheckpointSaves::finish(const TrainerState& state) {
  const int64_t step = state.step;
  env_.progress.set_phase(step, Phase::kSave);
  last_step_ = step;
  for (int64_t attempt = 1;; ++attempt) {
    LOCKSTEP_TRY(const RankFlags any, outcome(step));
    if (any.trouble == SaveTrouble::kNone) break;
    if (any.trouble == SaveTrouble::kTakenOver) return outage(any.trouble);
    // What made this save fail will not be mended by a process that is to end.
    if (any.trouble >= SaveTrouble::kTooLong || any.stop) return unsaved(step, any);
    if (attempt == 1 && env_.rank() == 0)
      log_warning("training is over, but the last save has not succeeded: it is tried again every ",
                  kAgain_s, " s until saves have failed for ", config_.outage_minutes,
                  " minutes (checkpoint.outage_minutes). Press Ctrl-C to end the run without it");
    for (double waited_s = 0; waited_s < kAgain_s; waited_s += kPause_ns * 1e-9) {
      env_.progress.touch();
      env_.clock.sleep_ns(kPause_ns);
    }
    LOCKSTEP_RETURN_IF_ERROR(begin_save(state, /*ephemeral=*/false));
  }
  return read_back();
}

// Each rank a share of the files: there are no more files than ranks, so none reads more than one.
Result<void> CheckpointSaves::read_back() {
  constexpr const char* kKey = "last_checkpoint";
  const int rank = env_.rank(), world_size = env_.world_size();
  checkpoint::Ballot& ballot = *engine_.ballot;
  if (rank == 0) LOCKSTEP_RETURN_IF_ERROR(ballot.tell(kKey, last_report_.directory.string()));
  LOCKSTEP_TRY(const std::string directory, ballot.hear(kKey, kReadBack));
  if (directory.empty()) return {};  // nothing was saved: the run was at its end
  const auto mine = checkpoint::verify_share(env_.file_system, directory, {rank, world_size},
                                             checkpoint::reader_threads());
  using Sums = Result<checkpoint::Fingerprints>;
  LOCKSTEP_TRY(const std::optional<Error> wrong,
               settle_for_all(
                   ballot, *env_.membership.communicator, std::string(kKey) + "/read_back",
                   mine.ok() ? Sums(mine.value().sums) : Sums(mine.error()),
                   [&](const checkpoint::Fingerprints& whole) {
                     return checkpoint::check_fingerprints(mine.value().manifest, whole);
                   },
                   kReadBack));
  if (wrong) return wrong->in(text("the final checkpoint cannot be read back: ", directory));
  if (rank == 0)
    log_info("the checkpoint of step ", last_step_,
             " was read back by all ranks and is whole: ", directory);
  return {};
}

}  // namespace lockstep::core
