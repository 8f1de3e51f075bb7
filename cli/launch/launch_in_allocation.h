// What Slurm has to do with `lockstep launch`: the plan before it, the decision after it.
#pragma once

#include <functional>
#include <string>

#include "config/config.h"
#include "launcher/agent/agent.h"
#include "launcher/host/environment.h"

namespace lockstep::cli {

// Calls `run`, which trains, and does for the job what launcher/slurm/policy.h decides, where this
// launcher is the one that speaks for the job; what it says is kept for the batch script
// (launcher/slurm/ends.h). Outside of Slurm: just `run`. Returns what to exit with.
// `run` is given how to ask Slurm what time is left; outside of Slurm it is empty.
// `resume_command` is shown where the run ends unfinished.
int launch_in_allocation(const Config& config, const Environment& environment,
                         const std::string& resume_command,
                         const std::function<launcher::AgentEnd(launcher::AskTimeLeft)>& run);

}  // namespace lockstep::cli
