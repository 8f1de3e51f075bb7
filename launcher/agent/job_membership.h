// What workers.json says of a job: what its coordinator knows of ranks, nodes and their hardware.
#pragma once

#include "launcher/agent/worker_processes.h"
#include "launcher/control/coordinator.h"
#include "launcher/host/run_files.h"

namespace lockstep::launcher {

// The ranks, with the pages of those that are this node's own workers, and what counters of
// hardware say.
Membership membership_of(const control::Coordinator& coordinator, const WorkerProcesses& own);
// ... and of several nodes which they are. `own`: this one, which listens at `own_address`.
void add_nodes(Membership& membership, const control::Coordinator& coordinator, control::NodeId own,
               const std::string& own_address);

}  // namespace lockstep::launcher
