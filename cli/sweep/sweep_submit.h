// A sweep under Slurm: its rows as the tasks of a job array, each in an allocation of its own.
#pragma once

#include "base/file_system.h"
#include "base/result.h"
#include "cli/sweep/sweep_plan.h"
#include "launcher/slurm/batch_script.h"

namespace lockstep::cli {

// Submits the rows of `plan` that are not settled; none is fine. `words` are sbatch's, and --array
// among them says no more than how many tasks run at a time: %2. Returns sbatch's exit status.
// Errors: kConfig: another --array; those of read_row and submit_script. Requires: the plan is
// pinned, unless `words` say --dry-run.
Result<int> submit_sweep(FileSystem& file_system, const SweepPlan& plan,
                         launcher::slurm::SubmitWords words);

}  // namespace lockstep::cli
