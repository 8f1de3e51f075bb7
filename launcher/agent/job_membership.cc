#include "launcher/agent/job_membership.h"

#include "base/text.h"

namespace lockstep::launcher {

Membership membership_of(const control::Coordinator& coordinator, const WorkerProcesses& own) {
  const control::Supervisor& supervisor = coordinator.supervisor();
  const control::Formation& formation = coordinator.formation();
  Membership membership;
  membership.generation = supervisor.generation();
  membership.world_size = supervisor.world_size();
  membership.restarts = supervisor.restarts_since_safe();
  for (int64_t rank = 0; rank < membership.world_size; ++rank)
    membership.workers.push_back({static_cast<int>(rank), formation.pid_of(rank), own.page_of(rank),
                                  formation.progress_of(rank)});
  for (const auto& node : coordinator.nodes())
    for (const std::string& line : node->health)
      membership.health.push_back(node->name.empty() ? line : text(node->name, ": ", line));
  return membership;
}

void add_nodes(Membership& membership, const control::Coordinator& coordinator, control::NodeId own,
               const std::string& own_address) {
  for (auto& member : membership.workers)
    if (const auto* node = coordinator.formation().node_of(member.rank)) member.node = node->name;
  for (const auto& node : coordinator.nodes()) {
    const bool is_own = node->peer.id == own;
    membership.nodes.push_back({.name = node->name,
                                .address = is_own ? own_address : node->peer.address,
                                .first_rank = coordinator.formation().first_rank(*node),
                                .suspect = node->suspect,
                                .coordinator = is_own});
  }
}

}  // namespace lockstep::launcher
