// How many nodes a job wants, and what it does when one of them is lost.
#pragma once

#include <algorithm>
#include <cstdint>

#include "config/choices.h"
#include "launcher/control/rule.h"
#include "launcher/control/supervisor.h"
#include "launcher/control/timing.h"

namespace lockstep::launcher::control {

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
  bool bars_wrong_nodes = false;        // the job goes on without a node that an audit names
  bool bars_broken_nodes = false;       // ... without one whose hardware has failed
  bool replaces_slow_nodes = false;     // a spare takes the place of a node whose rank is slow
  int64_t last_call_ns = 30'000 * kMs;  // from min_nodes on, for more to come
  Timing timing = {};
  Rule without = Rule::kNone;  // a test takes this rule out
};

}  // namespace lockstep::launcher::control
