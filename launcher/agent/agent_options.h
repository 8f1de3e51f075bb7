// What an agent (agent.h) is started with.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "launcher/agent/last_save.h"
#include "launcher/control/coordinator.h"
#include "launcher/control/supervisor.h"
#include "launcher/health/health_watch.h"
#include "launcher/host/environment.h"
#include "launcher/net/status_server.h"

namespace lockstep::launcher {

// How the nodes of a job find each other. One machine: all of it as it is here.
struct NodesOptions {
  int64_t min = 1, max = 1, spares = 0;
  int64_t coming = 0;  // so many the allocation has; 0: nobody knows
  OnNodeLoss on_loss = OnNodeLoss::kShrink;
  bool bars_wrong = false;     // audit.action = "evict"
  bool bars_broken = false;    // launcher.health = "evict"
  bool replaces_slow = false;  // launcher.straggler = "evict"
  control::Growth growth;
  bool starts_over = false;  // the coordinator was lost, and all that could take its place
  double last_call_s = 30, join_s = 600;
  control::Patience patience;
  std::string endpoint;       // HOST:PORT | file:DIR; empty: the run folder
  std::string job;            // tells jobs at one endpoint apart
  uint64_t run = 0;           // a hash of what the configs of all nodes share
  std::string name;           // of this node, for people
  std::string local_address;  // or an interface's name; empty: that of the route to the others
  bool several() const { return max > 1 || !endpoint.empty(); }
};

struct AgentOptions {
  control::SupervisorOptions supervisor;
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
  AskTimeLeft time_left;                    // of the allocation; empty: there is none
  health::ReadCounters hardware;            // of this node; empty: nobody reads them
  std::filesystem::path kernel_root = "/";  // where proc is
};

}  // namespace lockstep::launcher
