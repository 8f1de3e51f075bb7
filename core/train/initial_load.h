// The start of a run that has no checkpoint of its own: weights of another run's, step 0.
#pragma once

#include "base/file_system.h"
#include "config/config.h"
#include "core/comm/communicator.h"
#include "core/comm/shared_store.h"
#include "core/train/training_step.h"

namespace lockstep::core {

struct InitialLoad {
  std::filesystem::path directory;
  int64_t tensors = 0;  // loaded, by kind
  int64_t read_bytes = 0;
};

// Collective. Fills what checkpoint.initial_load_path and the two keys beside it select; the rest
// keeps what it holds, and the compute copies are refreshed. Requires: a path that is not empty,
// units initialized. Errors: kConfig (nothing there, another model, a pattern that matches
// nothing), kCorrupt, communication. `attempt`: as ResumeOptions'.
Result<InitialLoad> load_initial(FileSystem& file_system, const Config& config, SharedStore& store,
                                 Communicator& comm, TrainingStep& step, int64_t attempt);

}  // namespace lockstep::core
