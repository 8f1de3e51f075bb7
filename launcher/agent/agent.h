// One node's agent: carries out what its JobNode decides (control/job_node.h). Spawns the workers
// of each generation, watches their pidfds and progress pages, forwards signals, shows rank 0's
// console, talks to the other nodes' agents where there are any, and leaves a record:
//
//   <dump_folder>/logs/rank_00000.log …  stdout and stderr of each rank, all generations
//   <dump_folder>/logs/console.log       rank 0's stdout alone
//   <dump_folder>/logs/ready.log         what a process said before it had a rank
//   <dump_folder>/events.jsonl           what happened, for ever (run_files.h); the coordinator's
//   <dump_folder>/workers.json           who runs now; likewise
//   <dump_folder>/control/…              several nodes: who coordinates (control/rendezvous.h)
// Stores and progress pages live in a private folder under the system's temporary folder, which
// goes with the agent. TERM, INT, HUP, USR1 and USR2 at any node become SIGTERM to all workers,
// which save and exit with 75. An agent that is alone opens no socket but that of the status page,
// which the agent that coordinates serves where one was asked for.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/file_system.h"
#include "launcher/agent/agent_options.h"

namespace lockstep::launcher {

struct AgentEnd {
  int exit_status = 0;         // incident.h; of all agents the same that learnt how the job ended
  bool speaks_for_job = true;  // one of them does: who coordinated at the end
  bool alone = false;          // the coordinator was lost and nobody could take its place
  std::vector<std::string> nodes;  // ... and the nodes that it had then, by name; none alone
};
// Runs to the end. Requires: called from the program's main thread, which spawns the workers: they
// die with it.
AgentEnd run_agent(FileSystem& file_system, Clock& clock, const AgentOptions& options);

}  // namespace lockstep::launcher
