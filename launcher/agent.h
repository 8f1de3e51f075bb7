// One node's agent: carries out what the Supervisor decides. Spawns the workers of each generation,
// watches their pidfds and progress pages, forwards signals, shows rank 0's console, and leaves a
// record:
//
//   <dump_folder>/logs/rank_00000.log …  stdout and stderr of each rank, all generations
//   <dump_folder>/logs/console.log       rank 0's stdout alone
//   <dump_folder>/events.jsonl           what happened, for ever (run_files.h)
//   <dump_folder>/workers.json           who runs now
// Stores and progress pages live in a private folder under the system's temporary folder, which
// goes with the agent. TERM, INT, HUP and USR1 become SIGTERM to the workers, which save and exit
// with 75.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/file_system.h"
#include "launcher/environment.h"
#include "launcher/supervisor.h"

namespace lockstep::launcher {

struct AgentOptions {
  SupervisorOptions supervisor;
  std::filesystem::path worker_program;
  std::vector<std::string> worker_arguments;  // after the program's name
  Environment environment;                    // what workers inherit
  std::filesystem::path dump_folder;
  int64_t threads = 1;                        // intra-op threads of a worker
  std::string resume_command;                 // shown when the run ends unfinished
  int64_t tick_ms = 20;                       // how often pages are looked at
};

// Runs to the end; returns the exit status (incident.h). Requires: called from the program's main
// thread, which spawns the workers: they die with it.
int run_agent(FileSystem& file_system, Clock& clock, const AgentOptions& options);

std::filesystem::path log_path(const std::filesystem::path& dump_folder, int64_t rank);

}  // namespace lockstep::launcher
