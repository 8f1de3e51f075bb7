// How many nodes and workers a job wants, and what it does when one of them is lost.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "config/choices.h"
#include "launcher/control/message.h"
#include "launcher/control/rule.h"
#include "launcher/control/straggler.h"
#include "launcher/control/timing.h"

namespace lockstep::launcher::control {

struct SupervisorOptions {
  std::vector<int64_t> nproc_per_node;  // of each generation; the last one repeats
  int64_t default_nproc = 1;            // of every generation when the list is empty
  int64_t last_nproc() const {
    return nproc_per_node.empty() ? default_nproc : nproc_per_node.back();
  }
  int64_t first_generation = 0;  // number of this launch's first one; grows over launches
  bool shrink = false;           // past the end of the list: go on with the survivors
  int64_t min_nproc = 1;         // a shrink below this ends the run, to be resumed
  int64_t max_restarts = 3, max_no_progress = 3;
  double grace_s = 5;   // SIGTERM to SIGKILL; later in a save, validation or load: hang_s at most
  double hang_s = 120;  // no change of a page for this long is a hang; 0: never. Less in a
                        // phase whose silences are known, or of a stopped process
  double slow_factor = kSlowFactor, slow_s = 60;    // so many times the others' time, for so long
  Rule without = Rule::kNone;                       // a test takes this rule out
  int64_t safe_step = -1, restarts_since_safe = 0;  // what a coordinator before this one knew
};

// When a spare joins the running job.
struct Growth {
  int64_t slots = 1;      // of a step: the more ranks, the fewer rounds of them
  int64_t after_ns = -1;  // of staying there; -1: at the next restart alone
};

struct CoordinatorOptions {
  SupervisorOptions supervisor;
  NodeId id = 0;
  uint64_t run = 0;  // Report::run of the nodes that it takes
  int64_t min_nodes = 1, max_nodes = 1;
  int64_t spares = 0;  // nodes kept out of a generation while there are more than min_nodes
  int64_t coming = 0;  // so many nodes can come, at first; 0: nobody knows
  // For so many the first generation waits, once there are min_nodes.
  int64_t wanted_at_first() const {
    const int64_t all = max_nodes + spares;
    return coming < min_nodes ? all : std::min(all, coming);
  }
  OnNodeLoss on_node_loss = OnNodeLoss::kShrink;
  bool bars_wrong_nodes = false;     // the job goes on without a node that an audit names
  bool bars_broken_nodes = false;    // ... without one whose hardware has failed
  bool replaces_slow_nodes = false;  // a spare takes the place of a node whose rank is slow
  Growth growth;
  int64_t last_call_ns = 30'000 * kMs;  // from min_nodes on, for more to come
  Timing timing = {};
  Rule without = Rule::kNone;  // a test takes this rule out
};

}  // namespace lockstep::launcher::control
