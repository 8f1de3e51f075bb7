// Whether a command can go on from the checkpoints in its run folder, found before anything is
// started: what the ranks would refuse after they have loaded a model.
#pragma once

#include "base/file_system.h"
#include "base/result.h"
#include "config/config.h"
#include "layout/model_spec.h"

namespace lockstep::cli {

// Reads the manifest of the newest usable checkpoint. What cannot be read now is left to the ranks,
// which try again. Errors: kConfig, in the words of the ranks.
Result<void> check_resume(FileSystem& file_system, const Config& config,
                          const layout::ModelSpec& spec);

}  // namespace lockstep::cli
