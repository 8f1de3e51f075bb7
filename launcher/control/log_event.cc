#include "launcher/control/log_event.h"

#include <string>

#include "base/log.h"
#include "base/text.h"
#include "launcher/control/incident.h"

namespace lockstep::launcher::control {

void log_event(const LoggedEvent& event, int64_t min_nodes) {
  const std::string generation = text("generation ", event.generation);
  const std::string least = text("at least ", min_nodes, " nodes are needed");
  WorkerExit peer_lost;
  peer_lost.exit_code = kExitPeerLost;
  const bool lost_a_peer = event.reason == cause_text(peer_lost);
  if (event.event == "failure_detected" && lost_a_peer) {
    log_warning(generation, ": rank ", event.rank, " lost a peer at step ", event.step,
                ", because another rank or node failed; stopping the others");
  } else if (event.event == "failure_detected") {
    const std::string place = event.node.empty() ? "" : text(" on ", event.node);
    log_error(generation, ": rank ", event.rank, place, " ", event.reason, " at step ", event.step,
              "; stopping the others");
  } else if (event.event == "generation_start") {
    log_info(generation, " starts with ", event.reason);
  } else if (event.event == "recovered") {
    const std::string redone = redone_text(event.redone_steps, event.redone_s);
    log_info(generation, ": recovered, training continues from step ", event.step, "; ", redone,
             redone.empty() ? "" : "; ", event.reason);
  } else if (event.event == "stop_requested") {
    const bool at_once = event.reason.ends_with(" again");
    const char* more =
        event.reason == "SIGINT" ? " (press Ctrl-C again to stop without saving)" : "";
    log_info(event.reason,
             at_once ? ": workers are killed without saving; the newest checkpoint remains"
                     : text(": workers save a checkpoint and stop", more));
  } else if (event.event == "straggler") {
    log_warning(generation, ": rank ", event.rank, " ", event.reason, " at step ", event.step);
  } else if (event.event == "node_lost") {
    log_error(generation, ": ", event.reason);
  } else if (event.event == "grace_over" || event.event == "node_refused" ||
             event.event == "node_barred" || event.event == "node_replaced" ||
             event.event == "health") {
    log_warning(generation, ": ", event.reason);
  } else if (event.event == "node_joined") {
    if (event.world_size > 0)
      log_info(generation, ": node ", event.reason,
               " joined as a spare; it takes part from the next restart on");
    else
      log_info("node ", event.reason, " joined (", least, ")");
  } else if (event.event == "change_planned") {
    log_info(generation, ": a planned change ", event.reason,
             ", follows one of the next steps; no step is computed again");
  } else if (event.event == "changed") {
    log_info(generation, ": the planned change is done, training continues from step ", event.step,
             " on ", event.world_size, " ranks; ", event.reason);
  } else if (event.event == "spare_idle") {
    log_info(generation, ": ", event.reason);
  } else if (event.event == "waiting_for_nodes") {
    log_info(generation, ": waiting for nodes: ", event.reason.empty() ? least : event.reason);
  }
}

void log_ranks(const Order& order) {
  log_info("generation ", order.generation, ": ranks ", order.first_rank, " to ",
           order.first_rank + order.count - 1, " of ", order.world_size, " run here");
}

void log_end(int exit_status, const std::string& reason) {
  const std::string words = text("ended with status ", exit_status, ": ", reason);
  if (exit_status == kExitResume) {
    log_warning(words);
  } else {
    log_error(words);
  }
}

}  // namespace lockstep::launcher::control
