// Which end of a generation's workers was the failure, and which ones followed from it. It goes by
// what each agent did to its own workers and when, not by whose report arrived first: a SIGKILL
// that no agent sent is never a consequence.
// Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "launcher/control/incident.h"

namespace lockstep::launcher::control {

struct SeenExit {
  WorkerExit exit;
  bool after_kill;  // it was reported after the coordinator had ordered to kill all workers
};

// Whether it says no more than that another worker is gone.
bool peer_lost(const WorkerExit& exit);
// The failure that no other one explains. Requires: at least one exit.
size_t primary_index(const std::vector<SeenExit>& exits);
// How many workers were lost by themselves, and not because others were.
int64_t lost_workers(const std::vector<SeenExit>& exits);

}  // namespace lockstep::launcher::control
