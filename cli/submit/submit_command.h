// `lockstep submit CONFIG.toml --nodes N`: writes the batch script of a run, shows it, and hands it
// to sbatch. The config is checked first (status 64).
#pragma once

#include <string>

#include "base/result.h"
#include "launcher/slurm/batch_script.h"

namespace lockstep::cli {

// Fills in what `script` lacks beside its words and rows: the CPUs of a task, the job's name where
// its words do not say it, this program. Shows the script; submits it, unless its words say
// --dry-run. Returns sbatch's exit status. Errors: kConfig: no CPUs, no CUDA for the GPUs that are
// asked for; kIo, kNoSpace, kNotFound, kTimeout.
Result<int> submit_script(launcher::slurm::BatchScript script, const std::string& job_name);

// argv[0] is "submit". Returns sbatch's own status where it refuses.
int submit_command(int argc, char** argv);

}  // namespace lockstep::cli
