// `lockstep submit CONFIG.toml --nodes N`: writes the batch script of a run, shows it, and hands it
// to sbatch. The config is checked first (status 64).
#pragma once

namespace lockstep::cli {

// argv[0] is "submit". Returns sbatch's own status where it refuses.
int submit_command(int argc, char** argv);

}  // namespace lockstep::cli
