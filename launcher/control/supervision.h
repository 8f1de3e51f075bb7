// What the Supervisor (supervisor.h) is told, and what it asks for.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "launcher/control/incident.h"

namespace lockstep::launcher {

struct SupervisorOptions {
  std::vector<int64_t> nproc_per_node;  // of each generation; the last one repeats
  int64_t default_nproc = 1;            // of every generation when the list is empty
  int64_t first_generation = 0;         // number of this launch's first one; grows over launches
  bool shrink = false;                  // past the end of the list: go on with the survivors
  int64_t min_nproc = 1;                // a shrink below this ends the run, to be resumed
  int64_t max_restarts = 3;
  int64_t max_no_progress = 3;
  double grace_s = 5;   // SIGTERM to SIGKILL; a save, a validation or a load that goes on
                        // extends it, to hang_s at most
  double hang_s = 120;  // no change of a page for this long is a hang; 0: never. Less in a
                        // phase whose silences are known, or of a stopped process
  int64_t safe_step = -1, restarts_since_safe = 0;  // what a coordinator before this one knew
};

// What happened.
struct Begin {};
// For Begin, after a lost coordinator.
struct TookOver {
  WorkerExit lost;
  double silent_ms;
  int64_t world_size;
};
// How many nodes the next generation can have; 1 until it is said. While FORMING: begin anew.
struct Nodes {
  int64_t count = 1;            // 0: too few, wait for the next Nodes; < 0: there won't be more
  int64_t next_generation = 0;  // the next one's number is at least this
  std::string reason;           // of a count < 0
};
struct Agreed {};   // the nodes will carry out the last SpawnAll
struct Started {};  // every worker of the last SpawnAll runs
struct SpawnFailed {
  std::string message;
};                      // none of them is left
struct WorkersExited {  // all deaths noticed in one look, in any order
  std::vector<WorkerExit> exits;
  int64_t alive_ns = 0;  // when they were last known to live
};
struct Tick {
  std::vector<Sample> samples;
};  // by rank; those of reaped workers are ignored
struct StopRequested {
  int signal = 0;
};
using Event = std::variant<Begin, TookOver, Nodes, Agreed, Started, SpawnFailed, WorkersExited,
                           Tick, StopRequested>;

// What to do.
struct SpawnAll {
  int64_t generation, world_size, nodes;
};
struct Signal {
  int rank, signal;
};
struct KillAll {};  // SIGKILL to every worker that is left, with its children
struct Record {     // for events.jsonl and the console
  std::string event;
  int64_t generation, world_size;
  int rank = -1;  // -1: the whole generation
  std::string reason;
  int64_t step = -1;
  std::vector<int32_t> pids = {};  // of `rank`, or of all; the Coordinator knows them
};
struct Finish {
  int exit_status;
  std::string reason;
};
using Action = std::variant<SpawnAll, Signal, KillAll, Record, Finish>;
using Actions = std::vector<Action>;

}  // namespace lockstep::launcher
