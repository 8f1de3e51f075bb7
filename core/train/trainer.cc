#include "core/train/trainer.h"

#include <ATen/ops/zeros.h>

#include "base/check.h"
#include "base/log.h"
#include "checkpoint/save/preflight.h"
#include "core/comm/word_merge.h"
#include "core/model/decoder.h"
#include "core/optim/learning_rate.h"
#include "core/optim/not_finite.h"
#include "core/train/memory_stats.h"
#include "core/train/same_run.h"
#include "core/train/state_pieces.h"
#include "layout/memory_plan.h"

namespace lockstep::core {
namespace {

void log_model(const TrainerEnvironment& env, const RunInputs& in) {
  const layout::ModelSpec& spec = in.spec;
  if (env.rank() != 0) return;
  log_info("Model ", in.config.model.name, " size: ", grouped(spec.parameter_count()),
           " total parameters, ", in.config.parallelism.strategy, " on ", env.world_size(),
           " rank(s), ", in.config.slots(), " slots a step, identity ", in.identity.hash());
  if (const auto idle = layout::idle_ranks_warning(in.config, env.world_size()); !idle.empty())
    log_warning(idle);
  const layout::NodeRanks nodes = env.membership.groups().nodes;
  if (const auto idle = layout::reshard_is_idle(in.config, env.world_size(), nodes); !idle.empty())
    log_warning(idle);
  for (const std::string& note : spec.notes) log_warning(note);
  if (!spec.adapted()) return;
  log_info("LoRA: ", grouped(spec.trained_count()), " parameters of adapters are trained (",
           fixed(100.0 * static_cast<double>(spec.trained_count()) /
                     static_cast<double>(spec.parameter_count()),
                 3),
           " %), the others are frozen");
}

// Where nothing can be saved the run ends before its first step.
Result<void> try_saving(const TrainerEnvironment& env, const Config& config) {
  if (!config.checkpoint.enable) return {};
  return checkpoint::try_saving(env.file_system, config.checkpoint_folder(), env.rank(),
                                config.checkpoint.codec);
}

// Requires: no other loader reads the run's data.
std::unique_ptr<data::SlotLoader> loader_behind(const TrainerState& state, const RunInputs& in,
                                                const TrainingStep& model, int rank) {
  in.train_data->set_origin(data::origin_of(state.stretches.back()));
  return data::SlotLoader::create(*in.train_data, model.slot_map().slots_of(rank), state.step,
                                  in.config.data.prefetch);
}

}  // namespace

Result<std::unique_ptr<Trainer>> Trainer::create(const Config& config,
                                                 TrainerEnvironment environment) {
  Parts p{environment, {}, {}, {}, {}, {}, {}, {}, {}};
  const TrainerEnvironment& env = p.env;
  const int rank = env.rank();
  env.progress.set_phase(0, Phase::kLoad);
  LOCKSTEP_TRY(p.inputs, RunInputs::open(env.file_system, config, *env.membership.communicator));
  const RunInputs& in = *p.inputs;
  LOCKSTEP_RETURN_IF_ERROR(check_same_run("identity", in.identity.lines,
                                          *env.membership.communicator, *env.membership.store,
                                          config.comm.init_timeout_seconds));
  log_info("memory ", memory_line("after data creation", rank));
  LOCKSTEP_RETURN_IF_ERROR(try_saving(env, in.config));
  LOCKSTEP_RETURN_IF_ERROR(check_device(in.spec, env.membership.groups().device));
  p.step = std::make_unique<TrainingStep>(in.config, in.spec, env.membership.groups());
  log_model(env, in);
  LOCKSTEP_RETURN_IF_ERROR(p.step->fill_frozen(in.weights.get()));
  LOCKSTEP_TRY(p.start, RunStart::find(env, in, *p.step));
  log_info("memory ", memory_line("after model creation", rank));
  if (in.config.checkpoint.enable) {
    p.live = LiveState::of(p.step->units());
    LOCKSTEP_TRY(p.engine, CheckpointSaves::Engine::create(env, in, *p.start, *p.live));
  }
  if (p.start->memory) {
    LOCKSTEP_TRY(p.snapshots,
                 Snapshots::create({env.file_system, in.config, *p.start->memory, p.start->resumed,
                                    *env.membership.store, *env.membership.communicator,
                                    env.membership.buddies.get(), *p.live}));
  }
  p.loader = loader_behind(p.start->state, in, *p.step, rank);
  if (rank == 0) {
    const auto transport = env.membership.transport;
    LOCKSTEP_TRY(p.record, RunRecord::create(env.file_system, env.clock, in.config, in.spec,
                                             {env.world_size(), p.start->resumed.next_generation,
                                              in.identity.hash(), device_identity(),
                                              transport ? transport_name(*transport) : "none",
                                              in.identity.lines, &env.console}));
    p.record->set_skip_list(p.start->state.skip_list, /*rollbacks=*/0);
    p.record->set_data(p.start->state.stretches);
  }
  return std::unique_ptr<Trainer>(new Trainer(std::move(p)));
}

Trainer::Trainer(Parts p)
    : env_(p.env),
      inputs_(std::move(p.inputs)),
      config_(inputs_->config),
      step_(std::move(p.step)),
      start_(std::move(p.start)),
      state_(start_->state),
      live_(std::move(p.live)),
      record_(std::move(p.record)),
      saves_(p.engine.engine ? std::make_unique<CheckpointSaves>(std::move(p.engine), env_,
                                                                 *inputs_, start_->saved_step,
                                                                 *step_, *live_, record_.get())
                             : nullptr),
      snapshots_(std::move(p.snapshots)),
      loader_(std::move(p.loader)),
      audit_(env_, config_, start_->resumed.next_generation) {
  if (config_.profiling.enable_profiling) traces_.emplace(env_.rank());
}

Result<void> Trainer::run() {
  if (is_last(state_.step) && env_.rank() == 0)
    log_notice("nothing to do: the newest checkpoint is at step ", state_.step, " of ",
               config_.training.steps,
               state_.step < config_.training.steps ? ", and validation.patience is exhausted"
                                                    : "; raise training.steps to train longer");
  else if (env_.rank() == 0)
    log_notice("Training starts at step ", state_.step + 1,
               "; tps, tflops and mfu are per rank, and the number of ranks is ",
               env_.world_size());
  env_.progress.set_first_step(state_.step + 1);
  bool stop = false;
  bool warm = false;
  LOCKSTEP_RETURN_IF_ERROR(validate_what_was_left_out(stop));
  while (!is_last(state_.step) && !stop) {
    LOCKSTEP_RETURN_IF_ERROR(one_step(stop));
    if (!std::exchange(warm, true)) log_info("memory ", memory_line("after warmup", env_.rank()));
  }
  // A snapshot in memory may hold the last step, and the disk must.
  if (!warm && saves_ && saves_->saved_step() != state_.step)
    LOCKSTEP_RETURN_IF_ERROR(saves_->begin_save(state_, /*ephemeral=*/false));
  return finish(stop && !is_last(state_.step));
}

// The end of the run, by its steps or by its validations; all ranks know both.
bool Trainer::is_last(int64_t step) const {
  return step >= config_.training.steps ||
         state_.validations.exhausted(config_.validation.patience);
}

Result<void> Trainer::one_step(bool& stop) {
  const int64_t step = state_.step + 1;
  TraceRecorder* trace =
      traces_ && step % config_.profiling.profile_freq == 0 ? &*traces_ : nullptr;
  step_->watch().set_trace(trace);
  double whole_s = 0;
  {
    PhaseTimer timer(env_.clock, whole_s, trace, "step");
    LOCKSTEP_RETURN_IF_ERROR(timed_step(trace, stop));
  }
  if (trace == nullptr) return {};
  const auto path = config_.dump_folder() / config_.profiling.save_traces_folder /
                    text("iteration_", step) / text("rank", env_.rank(), "_trace.json");
  if (const auto written = trace->publish(env_.file_system, path); !written.ok())
    log_warning("cannot write a trace: ", written.error().message);
  return {};
}

Result<void> Trainer::timed_step(TraceRecorder* trace, bool& stop) {
  StepRecord record;
  record.step = state_.step + 1;
  env_.progress.set_phase(record.step, Phase::kStep);
  step_->watch().begin_step();
  Config::LrScheduler schedule = config_.lr_scheduler;
  if (schedule.total_steps == 0) schedule.total_steps = config_.training.steps;
  record.lr = learning_rate(config_.optimizer.lr, schedule, record.step);
  const WireBytes wire_before = env_.membership.wire_bytes();
  const bool passed_over = is_left_out(state_.skip_list, record.step);
  LOCKSTEP_RETURN_IF_ERROR(passed_over ? pass_over(record) : compute(record));
  record.phases = step_->watch().end_step();
  const StepOutcome& outcome = record.outcome;
  record.wire = env_.membership.wire_bytes().since(wire_before);
  if (!outcome.finite && !passed_over) {
    const NotFinite judged = judge_not_finite(config_.training.nan_policy, state_.skip_list.size());
    if (judged.verdict == NotFinite::Verdict::kGoBack) return roll_back(record);
    if (judged.verdict == NotFinite::Verdict::kStop) return stop_not_finite(record, judged.advice);
    if (env_.rank() == 0)
      log_error("step ", record.step, ": loss ", outcome.loss, ", gradient norm ",
                outcome.grad_norm, ": not finite; the update is skipped (training.nan_policy)");
  }
  LOCKSTEP_CHECK(record.step == state_.step + 1 && !(outcome.updated && passed_over), "step ",
                 record.step, " follows step ", state_.step);
  state_.step = record.step;
  if (outcome.updated)
    state_.tokens += outcome.valid_tokens;
  else
    ++state_.skipped_steps;
  LOCKSTEP_CHECK(outcome.valid_tokens >= 0, "step ", record.step, " has ", outcome.valid_tokens,
                 " valid tokens");
  if (saves_) saves_->add_stall(record.phases[StepPhase::kStall]);
  const auto slots = std::ssize(step_->slot_map().slots_of(env_.rank()));
  const double slots_s = record.phases[StepPhase::kDataWait] + record.phases[StepPhase::kForward] +
                         record.phases[StepPhase::kBackward];
  if (slots > 0) env_.progress.set_slot_us(static_cast<int64_t>(slots_s * 1e6) / slots);
  step_->watch().set_trace(nullptr);
  return after_step(record, trace, stop);
}

RankFlags Trainer::my_flags() {
  RankFlags flags{.stop = env_.stop_requested.load()};
  if (saves_) saves_->say(flags);
  flags.change = saves_ && !cannot_change_ && env_.progress.change() == Change::kAsked;
  if (snapshots_) snapshots_->say(flags);
  return flags;
}

Result<void> Trainer::compute(StepRecord& record) {
  const auto next_slot = [&]() -> Result<data::SlotBatch> {
    env_.progress.touch();
    LOCKSTEP_TRY(data::SlotBatch batch, loader_->next());
    LOCKSTEP_CHECK(batch.step == record.step - 1, "step ", record.step, " gets a slot of step ",
                   batch.step + 1);
    return batch;
  };
  std::function<Result<data::SlotBatch>(int64_t)> slot_again;
  if (audit_.due(record.step))
    slot_again = [&](int64_t slot) {
      env_.progress.touch();
      return inputs_->train_data->batch(record.step - 1, slot);
    };
  LOCKSTEP_TRY(record.outcome, step_->run(
                                   record.step, record.lr, [&] { return my_flags(); }, next_slot,
                                   [&] { before_update(record.step); }, slot_again));
  if (record.outcome.audit)
    LOCKSTEP_RETURN_IF_ERROR(audit_.take(record.step, *record.outcome.audit, state_));
  if (!record.outcome.finite)
    record.skipped = "not finite";
  else if (!record.outcome.updated)
    record.skipped = "no valid token";
  return {};
}

// The state changes next: what still reads it is waited for, by this thread and by the device.
void Trainer::before_update(int64_t step) {
  env_.progress.set_phase(step, Phase::kUpdate);
  if (snapshots_) snapshots_->wait_read();
  if (saves_) saves_->wait_read();
  if (live_) live_->thaw();
}

// Of a step that is left out: its slots are consumed.
Result<void> Trainer::pass_over(StepRecord& record) {
  LOCKSTEP_CHECK(is_left_out(state_.skip_list, record.step), "step ", record.step,
                 " is not on the skip list");
  for (size_t left = step_->slot_map().slots_of(env_.rank()).size(); left > 0; --left)
    LOCKSTEP_RETURN_IF_ERROR(loader_->next());
  LOCKSTEP_TRY(record.outcome, step_->pass_over(record.step, my_flags()));
  record.skipped = "left out";
  if (env_.rank() == 0)
    log_warning("step ", record.step, " is skipped: it is on the skip list (",
                state_.skip_list.size(), " of at most ", kMaxLeftOut, ")");
  return {};
}

// What all ranks do when step record.step is done: log, validate, save.
Result<void> Trainer::after_step(StepRecord& record, TraceRecorder* trace, bool& stop) {
  const int64_t step = record.step;
  const RankFlags& any = record.outcome.any;
  stop = any.stop;
  {
    PhaseTimer timer(env_.clock, record.validation_s, trace, "validation");
    LOCKSTEP_TRY(record.validation_loss, validate_if_due(step, stop));
  }
  const bool best = record.validation_loss && add_validation(*record.validation_loss);
  if (record_) record_->add_step(record);
  if (saves_ && any.trouble >= SaveTrouble::kTooLong) return saves_->outage(any.trouble);
  const bool must = stop || is_last(step);
  const bool changes = any.change && !must;
  double save_s = 0;
  {
    PhaseTimer timer(env_.clock, save_s, trace, "checkpoint begin");
    if (saves_)
      LOCKSTEP_RETURN_IF_ERROR(
          saves_->save_if_due(state_, must || (best && config_.checkpoint.keep_best), any));
  }
  if (record_) record_->add_begun_save(save_s);
  if (saves_) saves_->take_reports();
  if (snapshots_) {
    snapshots_->after_step(step, any, !must && !changes, saves_->saved_step(), state_.to_json(),
                           [&] { return saves_->copy_of(step); });
    env_.progress.set_snapshot_step(any.snapshot_step);
    if (record_) record_->set_snapshots(snapshots_->totals());
  }
  return changes ? end_for_change(any) : Result<void>();
}

// [P24], [P25] All ranks know of the planned change since the step that has ended. It ends this
// generation only when all know that the state is safe; else training goes on.
Result<void> Trainer::end_for_change(const RankFlags& any) {
  const int64_t step = state_.step;
  LOCKSTEP_CHECK(any.change && saves_, "step ", step, " ends no generation");
  env_.progress.set_phase(step, Phase::kSave);
  bool in_memory = false;
  if (snapshots_) {
    LOCKSTEP_TRY(in_memory, snapshots_->hold(step, any, saves_->saved_step(), state_.to_json(),
                                             [&] { return saves_->copy_of(step); }));
  }
  if (!in_memory) {
    LOCKSTEP_RETURN_IF_ERROR(saves_->save_and_wait(state_));
    LOCKSTEP_TRY(cannot_change_,
                 any_says(*env_.membership.communicator, saves_->saved_step() != step));
  }
  if (cannot_change_) {
    log_warning("step ", step, " could neither be held in memory nor be saved, so the planned ",
                "change of nodes does not take place, and training goes on");
    return {};
  }
  if (in_memory) env_.progress.set_snapshot_step(step);
  if (record_ && snapshots_) record_->set_snapshots(snapshots_->totals());
  env_.progress.say_changed();
  return Error{Code::kChanged, text("a planned change of nodes follows step ", step,
                                    "; its state is ", in_memory ? "in memory" : "on disk")};
}

// `stop`: all ranks know that one is asked; it may be asked meanwhile. The save may have little
// time; the last step's validation is a result of the run, and begins in any case.
Result<std::optional<double>> Trainer::validate_if_due(int64_t step, bool& stop) {
  const bool last = step == config_.training.steps;
  if (!inputs_->validation_data || (step % config_.validation.freq != 0 && !last))
    return std::optional<double>();
  if (stop && !last) {
    if (env_.rank() == 0)
      log_info("skipping the validation after step ", step, ", because a stop was requested");
    return std::optional<double>();
  }
  env_.progress.set_phase(step, Phase::kEval);
  int64_t begun = 0;
  const auto batch = [&](int64_t slot) {
    env_.progress.touch();
    begun = slot + 1;
    return inputs_->validation_data->batch(0, slot);
  };
  const bool known = stop;
  const auto asked = [&] { return !known && env_.stop_requested.load(); };
  LOCKSTEP_TRY(const auto loss, step_->evaluate(config_.validation.slots, batch, asked));
  if (loss)
    return std::optional<double>(loss->sum /
                                 static_cast<double>(std::max<int64_t>(1, loss->valid_tokens)));
  stop = true;
  if (env_.rank() == 0)
    log_notice("the validation after step ", step, " ends after slot ", begun, " of ",
               config_.validation.slots, ", because a stop was requested");
  return std::optional<double>();
}

// A stop leaves out the validation of its step. Where one decides something it comes now, so that
// the run goes on as one that was not stopped.
Result<void> Trainer::validate_what_was_left_out(bool& stop) {
  const int64_t step = state_.step;
  const bool decides = config_.validation.patience > 0 || config_.checkpoint.keep_best;
  if (!decides || step == 0 || state_.validations.step >= step) return {};
  LOCKSTEP_TRY(const auto loss, validate_if_due(step, stop));
  if (!loss) return {};
  if (env_.rank() == 0)
    log_notice("the validation after step ", step, ", which a stop had skipped: loss ", *loss);
  if (record_) record_->add_late_validation(step, *loss);
  if (!add_validation(*loss) || !saves_ || !config_.checkpoint.keep_best) return {};
  env_.progress.set_phase(step, Phase::kSave);
  LOCKSTEP_RETURN_IF_ERROR(saves_->begin_save(state_, /*ephemeral=*/false));
  LOCKSTEP_RETURN_IF_ERROR(saves_->drain());
  return {};
}

// True: the best so far.
bool Trainer::add_validation(double loss) {
  Validations& said = state_.validations;
  const bool best = said.add(state_.step, loss);
  if (said.exhausted(config_.validation.patience) && env_.rank() == 0)
    log_notice("validation.patience: ", said.without_gain,
               " validations in a row without a lower loss",
               said.best_step < 0 ? text(", and every loss was NaN")
                                  : text(" than ", said.best_loss, " of step ", said.best_step),
               "; training ends at step ", state_.step, " of ", config_.training.steps);
  return best;
}

Result<void> Trainer::roll_back(const StepRecord& record) {
  if (saves_) {
    LOCKSTEP_RETURN_IF_ERROR(saves_->drain());
    saves_->forget_staged();
  }
  env_.progress.set_phase(record.step, Phase::kLoad);
  ++rollbacks_;
  std::vector<int64_t> skip_list = std::move(state_.skip_list);
  leave_out(skip_list, record.step);
  LOCKSTEP_TRY(WentBack back, go_back(env_, *inputs_, *start_, rollbacks_, *step_));
  LOCKSTEP_CHECK(is_left_out(skip_list, record.step), "step ", record.step,
                 " was rolled back and would come again");
  state_ = std::move(back.state);
  state_.skip_list = std::move(skip_list);
  if (back.saved) saves_->set_saved_step(state_.step);
  loader_.reset();  // before the origin of its data changes
  loader_ = loader_behind(state_, *inputs_, *step_, env_.rank());
  if (env_.rank() == 0)
    log_error("step ", record.step, ": loss ", record.outcome.loss, ", gradient norm ",
              record.outcome.grad_norm, ": not finite; rolled back to step ", state_.step, " (",
              back.to, "); step ", record.step, " will be skipped");
  if (!record_) return {};
  record_->set_data(state_.stretches);
  record_->set_skip_list(state_.skip_list, rollbacks_);
  return {};
}

// The state of the step before is intact: it is saved, and the run ends.
Result<void> Trainer::stop_not_finite(const StepRecord& record, const std::string& advice) {
  const bool saves = saves_ && state_.step > 0;
  if (saves) LOCKSTEP_RETURN_IF_ERROR(saves_->save_and_wait(state_));
  const bool saved = saves && saves_->saved_step() == state_.step;
  return Error{Code::kNotFinite,
               text("step ", record.step, ": loss ", record.outcome.loss, ", gradient norm ",
                    record.outcome.grad_norm, ": not finite; the update was not made and step ",
                    state_.step, saved ? " is saved" : " is not saved", ". ", advice)};
}

Result<void> Trainer::finish(bool stopped) {
  const int64_t step = state_.step;
  log_info("memory ", memory_line("after training", env_.rank()));
  if (saves_) LOCKSTEP_RETURN_IF_ERROR(saves_->finish(state_));
  // Rank 0 may serve the store: nobody leaves before all have read what they wait for.
  at::Tensor mine = at::zeros({1}, at::kByte), all = at::zeros({env_.world_size()}, at::kByte);
  if (auto met = env_.membership.communicator->all_gather(all, mine)->wait(); !met.ok())
    return met.error().in("waiting for all ranks at the end of the run");
  if (snapshots_) snapshots_->remove();
  if (record_) record_->finish(!stopped);
  if (record_ && traces_) env_.console << record_->phase_table() << std::flush;
  env_.progress.set_phase(step, Phase::kDone);
  if (env_.rank() == 0)
    log_notice(stopped ? "stopped" : "done", " at step ", step,
               ": results, logs and checkpoints are in ", config_.dump_folder().string());
  if (stopped)
    return Error{Code::kAborted,
                 text("stopped on request after step ", step,
                      "; a checkpoint was saved; run the same command to continue")};
  return {};
}

}  // namespace lockstep::core
