// The events of a run, cut into launches, and what failed in each. Pure.
//
//   launch:  generation_start … failure_detected … generation_start … recovered … done
//
// A launch is what one typed command did. It ends with done, stopped or failed; one whose agent was
// killed says no end, and the next generation_start without a failure before it is another launch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "launcher/control/incident.h"

namespace lockstep::cli {

// Of a number that no event says: -1.
struct Failure {
  size_t first_event = 0;  // of its launch: the first one that belongs to it
  double unix_s = -1;
  int64_t generation = -1, world_size = -1, rank = -1, step = -1, pid = -1;
  int64_t local_rank = -1;    // among the ranks of its node
  std::string node;           // "": unknown
  launcher::WorkerExit exit;  // how the worker ended that failed first
  std::string reason, error;  // the same in words; the last error that it logged
  std::string node_reason;    // why its node was lost, barred or replaced; "": it was not
  bool node_barred = false, node_replaced = false;
  // The recovery from it.
  double recovered_s = -1;  // Unix time
  int64_t next_world_size = -1, resumed_step = -1, redone_steps = -1;
  double redone_s = -1;
  bool recovered() const { return recovered_s >= 0; }
};

struct LaunchRecord {
  std::vector<nlohmann::json> events;
  std::vector<Failure> failures;
  std::string end, end_reason;  // "done", "stopped", "failed"; "": it says no end
  int64_t exit_status = -1;
  double end_unix_s = -1;
  bool stepped = false;     // a step was completed
  std::string stop_reason;  // of the first request to stop: "SIGTERM"; "": nobody asked
  double stop_unix_s = -1;
  int64_t world_size = -1;  // of the newest generation
  int64_t generation = -1;
  // Whether it was refused before its first step, for what was typed, and so changed nothing.
  bool refused() const;
  // What the rank said that was refused first, else the last words of the launch.
  std::string refusal() const;
};

// In the order of the file; none without events.
std::vector<LaunchRecord> launches_of(const std::vector<nlohmann::json>& events);
// Whether the newest launch was refused, and others before it made the run what it is.
bool newest_was_refused(const std::vector<LaunchRecord>& launches);

}  // namespace lockstep::cli
