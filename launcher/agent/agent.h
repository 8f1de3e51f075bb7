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
// goes with the agent. TERM, INT, HUP and USR1 at any node become SIGTERM to all workers, which
// save and exit with 75. An agent that is alone opens no socket but that of the status page, which
// the agent that coordinates serves where one was asked for.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/file_system.h"
#include "launcher/control/coordinator.h"
#include "launcher/control/supervisor.h"
#include "launcher/host/environment.h"
#include "launcher/net/status_server.h"

namespace lockstep::launcher {

// How the nodes of a job find each other. One machine: all of it as it is here.
struct NodesOptions {
  int64_t min = 1, max = 1, spares = 0;
  control::OnNodeLoss on_loss = control::OnNodeLoss::kShrink;
  double last_call_s = 30;
  std::string endpoint;       // HOST:PORT | file:DIR; empty: the run folder
  std::string job;            // tells jobs at one endpoint apart
  uint64_t run = 0;           // a hash of what the configs of all nodes share
  std::string name;           // of this node, for people
  std::string local_address;  // or an interface's name; empty: that of the route to the others
  bool several() const { return max > 1 || !endpoint.empty(); }
};

struct AgentOptions {
  SupervisorOptions supervisor;
  NodesOptions nodes;
  std::filesystem::path worker_program;
  std::vector<std::string> worker_arguments;  // after the program's name
  Environment environment;                    // what workers inherit
  std::filesystem::path dump_folder;
  int64_t threads = 1;          // intra-op threads of a worker
  std::string resume_command;   // shown when the run ends unfinished
  int64_t tick_ms = 20;         // how often pages are looked at
  std::string status_endpoint;  // HOST:PORT | INTERFACE:PORT; empty: no status page
  net::StatusPages status_pages;
};

struct AgentEnd {
  int exit_status = 0;         // incident.h; of all agents the same that learnt how the job ended
  bool speaks_for_job = true;  // one of them does: who coordinated at the end
  bool alone = false;          // the coordinator was lost and nobody could take its place
  std::vector<std::string> nodes;  // ... and the nodes that it had then, by name; none alone
};
// Runs to the end. Requires: called from the program's main thread, which spawns the workers: they
// die with it.
AgentEnd run_agent(FileSystem& file_system, Clock& clock, const AgentOptions& options);

std::filesystem::path log_path(const std::filesystem::path& dump_folder, int64_t rank);

}  // namespace lockstep::launcher
