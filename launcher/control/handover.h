// What a coordinator takes over from the one before it, and what follows from that. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/control/events.h"
#include "launcher/control/supervisor.h"

namespace lockstep::launcher::control {

// What a coordinator has to know of the one before it.
struct Handover {
  int64_t generation = -1;      // the last one that was committed; -1: none, the job begins
  std::vector<NodeId> members;  // its nodes
  NodeId lost = 0;              // who led it
  double silent_ms = 0;         // for so long it has said nothing
  Progress progress = {};       // of a worker of this node: the lost one's is not known
  int64_t safe_step = -1, restarts = 0;
  int64_t parked = 0;                    // nodes that it had besides the members
  std::vector<std::string> barred = {};  // names of nodes that run no more workers
};

// The number of the first generation of the coordinator that follows.
int64_t next_generation(const Handover& before, int64_t of_a_new_job);
// What the supervisor begins with.
SupervisorOptions succeeding(SupervisorOptions options, const Handover& before);
// The loss of the coordinator before. Requires: `before` has members.
TookOver loss_of_leader(const Handover& before, int64_t per_node);

}  // namespace lockstep::launcher::control
