// Where the state of a run comes from: the newest checkpoint or snapshot, another run's checkpoint
// (checkpoint.initial_load_path), or the initial weights.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "core/train/memory_place.h"
#include "core/train/resume.h"
#include "core/train/run_inputs.h"

namespace lockstep::core {

struct RunStart {
  std::optional<MemoryPlace> memory;  // of snapshots, where they are on
  Resumed resumed;                    // what was found; its `from` is "" when nothing was
  TrainerState state;                 // with this run's identity and data
  int64_t saved_step = -1;            // newest one on disk

  // Requires: the frozen units are filled. Collective. Errors: kConfig, kNotFound, kCorrupt,
  // communication.
  static Result<std::unique_ptr<RunStart>> find(const TrainerEnvironment& env,
                                                const RunInputs& inputs, TrainingStep& step);
};

// Back to the newest checkpoint on disk, or to the initial weights, in a run that began from
// `start`. `attempt`: as ResumeOptions'. Collective. Errors: those of RunStart::find.
struct WentBack {
  TrainerState state;
  std::string to;  // for people
  bool saved;      // the state is a checkpoint's
};
Result<WentBack> go_back(const TrainerEnvironment& env, const RunInputs& inputs,
                         const RunStart& start, int64_t attempt, TrainingStep& step);

}  // namespace lockstep::core
