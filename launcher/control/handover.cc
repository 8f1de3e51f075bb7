#include "launcher/control/handover.h"

#include <algorithm>

#include "base/check.h"

namespace lockstep::launcher::control {

int64_t next_generation(const Handover& before, int64_t of_a_new_job) {
  LOCKSTEP_CHECK(before.generation >= -1, before.generation);
  LOCKSTEP_CHECK(of_a_new_job >= 0, of_a_new_job);
  return before.generation < 0 ? of_a_new_job : before.generation + 1;
}

SupervisorOptions succeeding(SupervisorOptions options, const Handover& before) {
  if (before.generation < 0) return options;
  LOCKSTEP_CHECK(before.safe_step >= -1 && before.restarts >= 0, before.safe_step, " ",
                 before.restarts);
  options.first_generation = before.generation;
  options.safe_step = before.safe_step;
  options.restarts_since_safe = before.restarts;
  return options;
}

TookOver loss_of_leader(const Handover& before, int64_t per_node) {
  const std::vector<NodeId>& members = before.members;
  LOCKSTEP_CHECK(before.generation >= 0 && !members.empty(), "generation ", before.generation,
                 " of ", members.size(), " nodes");
  LOCKSTEP_CHECK(per_node >= 1 && before.silent_ms >= 0, per_node, " ", before.silent_ms);
  const auto index = std::find(members.begin(), members.end(), before.lost) - members.begin();
  WorkerExit lost;
  lost.rank = static_cast<int>(index * per_node);
  lost.node_lost = "the node that coordinated the job is lost";
  lost.progress = before.progress;
  lost.progress.committed_step = before.safe_step;
  return {lost, before.silent_ms, static_cast<int64_t>(members.size()) * per_node};
}

}  // namespace lockstep::launcher::control
