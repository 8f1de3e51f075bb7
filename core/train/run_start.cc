#include "core/train/run_start.h"

#include "base/log.h"
#include "config/identity_difference.h"
#include "core/train/initial_load.h"

namespace lockstep::core {
namespace {

// What the state says from now on of the run that it belongs to.
void adopt(const TrainerEnvironment& env, const RunInputs& inputs, TrainerState& state) {
  const Config& config = inputs.config;
  state.identity = inputs.identity.lines;
  const auto lines =
      data::go_on_with(state.stretches,
                       {state.step, config.slots() * config.training.local_batch_size,
                        config.training.seq_len, inputs.summary.hash},
                       inputs.summary.sources, config.data.on_change);
  for (const std::string& line : lines)
    if (env.rank() == 0) log_warning(line);
}

// The initial weights, or another run's.
Result<TrainerState> start_from_nothing(const TrainerEnvironment& env, const RunInputs& inputs,
                                        int64_t attempt, TrainingStep& step) {
  LOCKSTEP_RETURN_IF_ERROR(step.initialize(inputs.weights.get()));
  TrainerState state;
  state.slots = inputs.config.slots();
  if (inputs.config.checkpoint.initial_load_path.empty()) return state;
  LOCKSTEP_TRY(const InitialLoad load,
               load_initial(env.file_system, inputs.config, *env.membership.store,
                            *env.membership.communicator, step, attempt));
  if (env.rank() == 0)
    log_info("starts from ", load.directory.string(), ": ", load.tensors, " tensors, ",
             bytes_text(static_cast<uint64_t>(load.read_bytes)), " read on this rank");
  return state;
}

// Says what was found, and whether its bits may be gone on with.
Result<void> check_found(const TrainerEnvironment& env, const RunInputs& inputs,
                         const Resumed& found) {
  const auto differing = identity_difference(found.state.identity, inputs.identity.lines);
  std::string all;
  for (const std::string& line : differing) {
    all += (all.empty() ? "" : "; ") + line;
    if (env.rank() == 0)
      log_warning("resuming under another identity, so the bits may differ from here on: ", line);
  }
  if (!differing.empty() && inputs.config.checkpoint.strict_identity)
    return Error{Code::kConfig,
                 text(found.from, " was made under another identity: ", all,
                      "; undo the change, or set checkpoint.strict_identity = false")};
  if (env.rank() == 0)
    log_notice("resumed from ", found.from, " at step ", found.state.step, ": ",
               bytes_text(static_cast<uint64_t>(found.read_bytes)), " in ", fixed(found.seconds, 3),
               " s",
               found.snapshot_folder.empty() ? "" : text("; the disk has step ", found.disk_step));
  return {};
}

}  // namespace

Result<std::unique_ptr<RunStart>> RunStart::find(const TrainerEnvironment& env,
                                                 const RunInputs& inputs, TrainingStep& step) {
  auto start = std::make_unique<RunStart>();
  const Config& config = inputs.config;
  SharedStore& store = *env.membership.store;
  Communicator& comm = *env.membership.communicator;
  if (config.checkpoint.enable) {
    if (config.checkpoint.memory_interval > 0) {
      LOCKSTEP_TRY(start->memory,
                   find_memory_place(env.file_system, config, env.checkpoint_place, store, comm));
    }
    const ResumeOptions options{start->memory ? &*start->memory : nullptr, env.nonce,
                                env.generation};
    LOCKSTEP_TRY(start->resumed,
                 resume_newest(env.file_system, config, options, store, comm, step));
  }
  const Resumed& found = start->resumed;
  if (found.from.empty()) {
    LOCKSTEP_TRY(start->state, start_from_nothing(env, inputs, /*attempt=*/0, step));
  } else {
    LOCKSTEP_RETURN_IF_ERROR(step.take_loaded());
    LOCKSTEP_RETURN_IF_ERROR(check_found(env, inputs, found));
    start->state = found.state;
  }
  adopt(env, inputs, start->state);
  const bool on_disk = !found.from.empty() && found.snapshot_folder.empty();
  start->saved_step = on_disk ? start->state.step : found.disk_step;
  env.progress.set_committed_step(start->saved_step);
  return start;
}

Result<WentBack> go_back(const TrainerEnvironment& env, const RunInputs& inputs,
                         const RunStart& start, int64_t attempt, TrainingStep& step) {
  Resumed found;
  if (inputs.config.checkpoint.enable) {
    const ResumeOptions disk_only{nullptr, start.resumed.nonce, start.resumed.next_generation,
                                  attempt};
    LOCKSTEP_TRY(found, resume_newest(env.file_system, inputs.config, disk_only,
                                      *env.membership.store, *env.membership.communicator, step));
  }
  WentBack back{found.state, found.from, !found.from.empty()};
  if (back.saved) {
    LOCKSTEP_RETURN_IF_ERROR(step.take_loaded());
  } else {
    back.to = "the initial weights";
    LOCKSTEP_TRY(back.state, start_from_nothing(env, inputs, attempt, step));
  }
  adopt(env, inputs, back.state);
  return back;
}

}  // namespace lockstep::core
