// What a run does now, in one plain sentence: the same on the screen, on the page and in --json.
#pragma once

#include <string>

#include "cli/status/run_status.h"

namespace lockstep::cli {

// "waiting for nodes for 0:02:05: 1 are here, at least 2 must be"
// "recovering: rank 1 killed by SIGKILL at step 17; ranks: 2 in load, 1 gone"
// "running, and rank 2 is suspect: no sign of life for 8.1 s"
// "failed with status 70 after rank 0 exit code 70 at step 9: …"
// Pure. Requires: find_suspects was called.
std::string state_text(const RunStatus& status);

}  // namespace lockstep::cli
