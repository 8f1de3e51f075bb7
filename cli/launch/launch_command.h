// `lockstep train` and `lockstep launch`: run the ranks of a training run on this machine.
//
// Both check the whole configuration first (status 64, before anything is started). `train` runs
// the workers once; `launch` also restarts them from the newest checkpoint when one dies. Under
// srun or torchrun, which start one `lockstep train` a rank, `train` becomes this rank's worker.
// Exit statuses: launcher/control/incident.h.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "config/config.h"

namespace lockstep::cli {

// The validated config of a command's arguments, among which the TOML file's name stands anywhere.
// Errors: kConfig, kNotFound.
Result<Config> read_config(const std::vector<std::string>& arguments, const std::string& command);

// argv[0] is the command's own name ("train"), the rest its arguments.
int train_command(int argc, char** argv);
int launch_command(int argc, char** argv);

}  // namespace lockstep::cli
