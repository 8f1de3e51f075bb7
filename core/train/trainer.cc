#include "core/train/trainer.h"

#include "base/log.h"
#include "checkpoint/load/chunk_reader.h"
#include "checkpoint/save/preflight.h"
#include "checkpoint/save/save_schedule.h"
#include "checkpoint/tools/verify.h"
#include "core/optim/adamw.h"
#include "core/train/initial_load.h"
#include "core/train/memory_stats.h"
#include "core/train/same_run.h"
#include "core/train/state_pieces.h"
#include "core/train/store_ballot.h"
#include "data/loader/open_dataset.h"
#include "data/loader/slot_loader.h"
#include "hf/configured_model.h"

namespace lockstep::core {
namespace {

constexpr double kReadBackSeconds = 1800;  // for rank 0 to read the final checkpoint back

}  // namespace

Result<std::unique_ptr<Trainer>> Trainer::create(const Config& config,
                                                 TrainerEnvironment environment) {
  std::unique_ptr<Trainer> t(new Trainer(config, environment));
  t->env_.progress.set_phase(0, Phase::kLoad);
  LOCKSTEP_RETURN_IF_ERROR(t->open_data());
  LOCKSTEP_RETURN_IF_ERROR(
      check_same_run("identity", t->identity_.lines, *environment.membership.communicator,
                     *environment.membership.store, config.comm.init_timeout_seconds));
  log_info("memory ", memory_line("after data creation", t->rank()));
  LOCKSTEP_RETURN_IF_ERROR(t->try_saving());
  LOCKSTEP_RETURN_IF_ERROR(t->build_model());
  log_info("memory ", memory_line("after model creation", t->rank()));
  LOCKSTEP_RETURN_IF_ERROR(t->start_engine());
  return t;
}

Result<void> Trainer::open_data() {
  LOCKSTEP_TRY(summary_, data::summary_of(env_.file_system, config_.data));
  LOCKSTEP_TRY(spec_, hf::configured_model(config_, summary_.vocab_size));
  // Resolved: part of the identity and of run_args.json.
  layout::write_keys(spec_.shape, config_.model);
  LOCKSTEP_TRY(weights_, hf::initial_weights(env_.file_system, config_, spec_));
  data::TokenDataset::Options options{"train",
                                      config_.training.seq_len,
                                      config_.training.local_batch_size,
                                      config_.slots(),
                                      static_cast<uint64_t>(config_.training.seed),
                                      spec_.shape.vocab_size};
  LOCKSTEP_TRY(train_data_, data::open_dataset(env_.file_system, config_.data, options));
  if (config_.validation.freq > 0) {
    options.split = "val";
    options.slots = config_.validation.slots;
    auto opened = data::open_dataset(env_.file_system, config_.data, options);
    if (!opened.ok())
      return opened.error().in(
          "held-out samples for validation (validation.freq = 0 does without)");
    validation_data_ = std::move(opened).value();
  }
  LOCKSTEP_TRY(identity_, make_identity(config_, spec_, summary_.hash, weights_.get()));
  return {};
}

Result<void> Trainer::try_saving() {
  if (!config_.checkpoint.enable) return {};
  return checkpoint::try_saving(env_.file_system, config_.checkpoint_folder(), rank(),
                                config_.checkpoint.codec);
}

Result<void> Trainer::build_model() {
  step_ = std::make_unique<TrainingStep>(config_, spec_, env_.membership.groups());
  if (rank() == 0)
    log_info("Model ", config_.model.name, " size: ", grouped(spec_.parameter_count()),
             " total parameters, ", config_.parallelism.strategy, " on ", world_size(),
             " rank(s), ", config_.slots(), " slots a step, identity ", identity_.hash());
  if (rank() == 0)
    for (const std::string& note : spec_.notes) log_warning(note);
  if (rank() == 0 && spec_.adapted())
    log_info("LoRA: ", grouped(spec_.trained_count()), " parameters of adapters are trained (",
             fixed(100.0 * static_cast<double>(spec_.trained_count()) /
                       static_cast<double>(spec_.parameter_count()),
                   3),
             " %), the others are frozen");
  LOCKSTEP_RETURN_IF_ERROR(step_->fill_frozen(weights_.get()));
  return resume();
}

Result<void> Trainer::resume() {
  if (config_.checkpoint.enable) {
    SharedStore& store = *env_.membership.store;
    Communicator& comm = *env_.membership.communicator;
    if (config_.checkpoint.memory_interval > 0) {
      LOCKSTEP_TRY(memory_, find_memory_place(env_.file_system, config_, env_.checkpoint_place,
                                              store, comm));
    }
    const ResumeOptions options{memory_ ? &*memory_ : nullptr, env_.nonce, env_.generation};
    LOCKSTEP_TRY(resumed_, resume_newest(env_.file_system, config_, options, store, comm, *step_));
  }
  state_ = resumed_.state;
  const bool from_memory = !resumed_.snapshot_folder.empty();
  if (resumed_.from.empty()) {
    LOCKSTEP_RETURN_IF_ERROR(start_from_nothing());
  } else {
    step_->refresh_compute_copies();
    const auto differing = identity_difference(state_.identity, identity_.lines);
    for (const std::string& line : differing)
      if (rank() == 0)
        log_warning("resuming with another identity, bits may differ from here on: ", line);
    if (!differing.empty() && config_.checkpoint.strict_identity)
      return Error{Code::kConfig, text("checkpoint.strict_identity: ", resumed_.from,
                                       " was made under another identity: ", differing.front())};
    if (rank() == 0)
      log_notice("resumed from ", resumed_.from, " at step ", state_.step, ": ",
                 bytes_text(static_cast<uint64_t>(resumed_.read_bytes)), " in ",
                 fixed(resumed_.seconds, 3), " s",
                 from_memory ? text("; the disk has step ", resumed_.disk_step) : "");
  }
  adopt_identity();
  saved_step_ = resumed_.from.empty() || from_memory ? resumed_.disk_step : state_.step;
  env_.progress.set_committed_step(saved_step_);
  return {};
}

// What the state says from now on of the run that it belongs to.
void Trainer::adopt_identity() {
  state_.identity = identity_.lines;
  const auto lines =
      data::go_on_with(state_.stretches,
                       {state_.step, config_.slots() * config_.training.local_batch_size,
                        config_.training.seq_len, summary_.hash},
                       summary_.sources);
  for (const std::string& line : lines)
    if (rank() == 0) log_warning(line);
  if (record_) record_->set_data(state_.stretches);
}

Result<void> Trainer::start_from_nothing() {
  LOCKSTEP_RETURN_IF_ERROR(step_->initialize(weights_.get()));
  state_ = TrainerState{};
  state_.slots = config_.slots();
  return config_.checkpoint.initial_load_path.empty() ? Result<void>() : start_from_another();
}

Result<void> Trainer::start_from_another() {
  LOCKSTEP_TRY(const InitialLoad load,
               load_initial(env_.file_system, config_, *env_.membership.store,
                            *env_.membership.communicator, *step_, rollbacks_));
  if (rank() == 0)
    log_info("starts from ", load.directory.string(), ": ", load.tensors, " tensors, ",
             bytes_text(static_cast<uint64_t>(load.read_bytes)), " read on this rank");
  return {};
}

Result<void> Trainer::start_engine() {
  if (config_.checkpoint.enable) {
    ballot_ = std::make_unique<StoreBallot>(*env_.membership.store);
    checkpoint::EngineOptions o;
    o.folder = config_.checkpoint_folder();
    o.rank = rank();
    o.world_size = world_size();
    o.generation = resumed_.next_generation;
    o.nonce = resumed_.nonce;
    o.codec = config_.checkpoint.codec;
    o.threads = static_cast<int>(config_.checkpoint.threads);
    o.nice = static_cast<int>(config_.checkpoint.nice);
    o.retention = {config_.checkpoint.keep_latest_k, config_.checkpoint.keep_every,
                   config_.checkpoint.keep_minutes};
    o.vote_deadline = std::chrono::milliseconds(
        static_cast<int64_t>(config_.checkpoint.vote_timeout_seconds * 1000));
    LOCKSTEP_TRY(engine_, checkpoint::Engine::create(o, env_.file_system, *ballot_, env_.progress,
                                                     owned_pieces(step_->units())));
    LOCKSTEP_RETURN_IF_ERROR(start_snapshots());
  }
  start_loader();
  if (rank() != 0) return {};
  LOCKSTEP_TRY(record_, RunRecord::create(env_.file_system, env_.clock, config_, spec_,
                                          {world_size(), resumed_.next_generation, identity_.hash(),
                                           device_identity(), identity_.lines, &env_.console}));
  record_->set_skip_list(state_.skip_list, rollbacks_);
  record_->set_data(state_.stretches);
  return {};
}

void Trainer::start_loader() {
  loader_ = data::SlotLoader::create(*train_data_, step_->slot_map().slots_of(rank()), state_.step,
                                     config_.data.prefetch);
}

Result<void> Trainer::start_snapshots() {
  if (!memory_) return {};
  LOCKSTEP_TRY(snapshots_,
               Snapshots::create({env_.file_system, config_, *memory_, resumed_,
                                  *env_.membership.store, env_.membership.background.get()},
                                 owned_pieces(step_->units())));
  return {};
}

bool Trainer::saving() const {
  if (!engine_) return false;
  const SavePhase phase = engine_->phase();
  return phase == SavePhase::kStaging || phase == SavePhase::kWriting ||
         phase == SavePhase::kVoting;
}

// One clock decides for all: rank 0's word travels with the step's flags.
bool Trainer::save_time() const {
  const double minutes = config_.checkpoint.interval_minutes;
  return rank() == 0 && minutes > 0 && env_.clock.monotonic_s() - saved_at_s_ >= 60 * minutes;
}

Result<void> Trainer::run() {
  saved_at_s_ = env_.clock.monotonic_s();
  const int64_t last = config_.training.steps;
  if (state_.step >= last && rank() == 0)
    log_notice("nothing to do: the newest checkpoint is at step ", state_.step, " of ", last);
  if (rank() == 0) log_info("Training starts at step ", state_.step + 1);
  if (config_.profiling.enable_profiling) traces_.emplace(rank());
  bool stop = false;
  bool warm = false;
  while (state_.step < last && !stop) {
    LOCKSTEP_RETURN_IF_ERROR(one_step(stop));
    if (!std::exchange(warm, true)) log_info("memory ", memory_line("after warmup", rank()));
  }
  // A snapshot in memory may hold the last step, and the disk must.
  if (!warm && engine_ && saved_step_ != state_.step)
    LOCKSTEP_RETURN_IF_ERROR(begin_save(/*ephemeral=*/false));
  return finish(state_.step, stop && state_.step < last);
}

Result<void> Trainer::one_step(bool& stop) {
  const int64_t step = state_.step + 1;
  TraceRecorder* trace =
      traces_ && step % config_.profiling.profile_freq == 0 ? &*traces_ : nullptr;
  step_->set_trace(trace);
  double whole_s = 0;
  {
    PhaseTimer timer(env_.clock, whole_s, trace, "step");
    LOCKSTEP_RETURN_IF_ERROR(timed_step(trace, stop));
  }
  if (trace == nullptr) return {};
  const auto path = config_.dump_folder() / config_.profiling.save_traces_folder /
                    text("iteration_", step) / text("rank", rank(), "_trace.json");
  if (const auto written = trace->publish(env_.file_system, path); !written.ok())
    log_warning("a trace is not written: ", written.error().message);
  return {};
}

Result<void> Trainer::timed_step(TraceRecorder* trace, bool& stop) {
  StepRecord record;
  record.step = state_.step + 1;
  env_.progress.set_phase(record.step, Phase::kStep);
  const double start = env_.clock.monotonic_s();
  const Config::LrScheduler& s = config_.lr_scheduler;
  record.lr = learning_rate(config_.optimizer.lr, s.warmup_steps,
                            s.total_steps > 0 ? s.total_steps : config_.training.steps,
                            s.decay_type, s.min_lr_factor, record.step);
  const WireBytes wire_before = env_.membership.wire_bytes();
  LOCKSTEP_RETURN_IF_ERROR(left_out(record.step) ? leave_out(record) : compute(record));
  const StepOutcome& outcome = record.outcome;
  record.wire = env_.membership.wire_bytes().since(wire_before);
  if (!outcome.finite && !left_out(record.step)) {
    if (config_.training.nan_policy == NanPolicy::kRollback) return roll_back(record);
    if (config_.training.nan_policy == NanPolicy::kStop)
      return stop_not_finite(record,
                             "A restart would give the same bits: lower optimizer.lr, look "
                             "at the data of this step, or see training.nan_policy");
    if (rank() == 0)
      log_error("step ", record.step, ": loss ", outcome.loss, ", gradient norm ",
                outcome.grad_norm, ": not finite; the update is skipped (training.nan_policy)");
  }
  state_.step = record.step;
  if (outcome.updated)
    state_.tokens += outcome.valid_tokens;
  else
    ++state_.skipped_steps;
  stall_of_save_ += outcome.phases.stall;
  record.step_time_s = env_.clock.monotonic_s() - start;
  const auto slots = std::ssize(step_->slot_map().slots_of(rank()));
  const double slots_s =
      outcome.phases.data_wait + outcome.phases.schedule.forward + outcome.phases.schedule.backward;
  if (slots > 0) env_.progress.set_slot_us(static_cast<int64_t>(slots_s * 1e6) / slots);
  step_->set_trace(nullptr);
  return after_step(record, trace, stop);
}

RankFlags Trainer::my_flags() const {
  RankFlags flags{env_.stop_requested.load(), saving(), failed_in_row_, save_time()};
  if (snapshots_) snapshots_->say(flags);
  return flags;
}

Result<void> Trainer::compute(StepRecord& record) {
  const auto next_slot = [&] {
    env_.progress.touch();
    return loader_->next();
  };
  const auto before_update = [&] {
    env_.progress.set_phase(record.step, Phase::kUpdate);
    if (snapshots_) snapshots_->wait_copied();
    if (engine_) engine_->wait_staged();
  };
  LOCKSTEP_TRY(record.outcome,
               step_->run(
                   record.step, record.lr, [&] { return my_flags(); }, next_slot, before_update));
  if (!record.outcome.finite)
    record.skipped = "not finite";
  else if (!record.outcome.updated)
    record.skipped = "no valid token";
  return {};
}

// What all ranks do when step record.step is done: log, validate, save.
Result<void> Trainer::after_step(StepRecord& record, TraceRecorder* trace, bool& stop) {
  const int64_t step = record.step;
  const RankFlags& any = record.outcome.any;
  {
    PhaseTimer timer(env_.clock, record.validation_s, trace, "validation");
    LOCKSTEP_TRY(record.validation_loss, validate_if_due(step, any.stop));
  }
  if (record_) record_->add_step(record);
  stop = any.stop;
  if (any.failed_saves >= config_.checkpoint.max_failures)
    return too_many_failures(any.failed_saves);
  const bool must = stop || step == config_.training.steps;
  double save_s = 0;
  {
    PhaseTimer timer(env_.clock, save_s, trace, "checkpoint begin");
    LOCKSTEP_RETURN_IF_ERROR(save_if_due(step, must, any));
  }
  if (record_) record_->add_begun_save(save_s);
  take_reports();
  if (snapshots_) {
    if (step % config_.checkpoint.memory_interval == 0) step_->pull_state();
    snapshots_->after_step(step, any, !must, saved_step_, state_.to_json());
    env_.progress.set_snapshot_step(any.snapshot_step);
    if (record_) record_->set_snapshots(snapshots_->totals());
  }
  return {};
}

Error Trainer::too_many_failures(int64_t count) const {
  const Code code = checkpoint::fatal_code(last_report_.code);
  return {code, text(count, " saves in a row failed, the last one here: ", last_report_.error,
                     "; the newest committed checkpoint is intact: ",
                     code == Code::kNoSpace ? "make room and " : "", "run the same command")};
}

// `stop`: all ranks know that one is asked. The save may have little time; the last step's
// validation is a result of the run.
Result<std::optional<double>> Trainer::validate_if_due(int64_t step, bool stop) {
  const bool last = step == config_.training.steps;
  if (!validation_data_ || (step % config_.validation.freq != 0 && !last))
    return std::optional<double>();
  if (stop && !last) {
    if (rank() == 0) log_info("no validation after step ", step, ": a stop is asked");
    return std::optional<double>();
  }
  env_.progress.set_phase(step, Phase::kEval);
  LOCKSTEP_TRY(const SlotLoss loss, step_->evaluate(config_.validation.slots, [&](int64_t slot) {
    env_.progress.touch();
    return validation_data_->batch(0, slot);
  }));
  return std::optional<double>(loss.sum /
                               static_cast<double>(std::max<int64_t>(1, loss.valid_tokens)));
}

// `any` is the same on every rank, so all save, or skip, together.
Result<void> Trainer::save_if_due(int64_t step, bool must, const RankFlags& any) {
  const Config::Checkpoint& c = config_.checkpoint;
  // A save that time asks for waits for the one in flight; it is not skipped.
  const checkpoint::Due due = checkpoint::save_due({c.interval, c.ephemeral_interval}, step, must,
                                                   any.save_time && !any.save_busy);
  if (!engine_ || due == checkpoint::Due::kNo) return {};
  env_.progress.set_phase(step, Phase::kSave);
  const double start = env_.clock.monotonic_s();
  if (must || c.when_busy == WhenBusy::kWait) {
    engine_->drain();
    take_reports();
  } else if (any.save_busy) {
    if (rank() == 0)
      log_warning("the save of step ", step,
                  " is skipped: the one before it is still being written");
    if (record_) record_->add_skipped_save();
    return {};
  }
  LOCKSTEP_RETURN_IF_ERROR(begin_save(due == checkpoint::Due::kEphemeral));
  stall_of_save_ += env_.clock.monotonic_s() - start;
  return {};
}

// Of the step that state_ is at. Requires: nothing in flight.
Result<void> Trainer::begin_save(bool ephemeral) {
  if (!ephemeral) saved_at_s_ = env_.clock.monotonic_s();
  step_->pull_state();
  LOCKSTEP_TRY(const bool begun,
               engine_->begin_save(
                   {state_.step, state_.step - state_.skipped_steps, ephemeral, state_.to_json()}));
  if (!begun)
    return Error{Code::kBug, text("the checkpoint engine was busy at step ", state_.step,
                                  " and said it was idle")};
  return {};
}

void Trainer::take_reports() {
  if (!engine_) return;
  for (checkpoint::SaveReport& report : engine_->take_reports()) {
    failed_in_row_ = report.committed ? 0 : failed_in_row_ + 1;
    if (report.committed) saved_step_ = report.step;
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
      log_info("memory ", memory_line("after checkpoint", rank()));
    stall_of_save_ = 0;
    last_report_ = std::move(report);
  }
}

Result<void> Trainer::finish(int64_t step, bool stopped) {
  if (engine_) {
    env_.progress.set_phase(step, Phase::kSave);
    engine_->drain();
    take_reports();
    if (saved_step_ != step)
      return Error{checkpoint::fatal_code(last_report_.code),
                   text("the final save of step ", step, " failed: ", last_report_.error)};
    if (rank() == 0 && !last_report_.directory.empty()) {
      LOCKSTEP_TRY(const auto problems, checkpoint::verify(env_.file_system, last_report_.directory,
                                                           checkpoint::reader_threads()));
      if (!problems.empty())
        return Error{Code::kCorrupt, text("the final checkpoint does not read back: ",
                                          problems.front().where, ": ", problems.front().what)};
      log_info("the checkpoint of step ", step,
               " was read back and is whole: ", last_report_.directory.string());
    }
  }
  // Reading back may take longer than a collective waits.
  SharedStore& store = *env_.membership.store;
  if (rank() == 0) LOCKSTEP_RETURN_IF_ERROR(store.set("finished", "yes"));
  LOCKSTEP_RETURN_IF_ERROR(store.get("finished", kReadBackSeconds));
  // Rank 0 may serve the store: nobody leaves before all have read what they wait for.
  at::Tensor mine = at::zeros({1}, at::kByte), all = at::zeros({world_size()}, at::kByte);
  if (auto met = env_.membership.communicator->all_gather(all, mine)->wait(); !met.ok())
    return met.error().in("waiting for all ranks at the end");
  if (snapshots_) snapshots_->remove();
  if (record_) record_->publish_metrics(!stopped);
  if (record_ && traces_) env_.console << record_->phase_table() << std::flush;
  env_.progress.set_phase(step, Phase::kDone);
  if (stopped)
    return Error{Code::kAborted, text("stopped on request after step ", step,
                                      "; saved; run the same command to go on")};
  return {};
}

}  // namespace lockstep::core
