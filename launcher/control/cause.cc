#include "launcher/control/cause.h"

#include <algorithm>
#include <csignal>
#include <tuple>

#include "base/check.h"

namespace lockstep::launcher::control {
namespace {

bool killed_by_agent(const WorkerExit& exit) {
  return exit.signal == SIGKILL && exit.agent_did == AgentDid::kKilled;
}

bool killed_by_others(const WorkerExit& exit) {
  return exit.signal == SIGKILL && exit.agent_did != AgentDid::kKilled;
}

// The smaller one is nearer to the cause.
auto order_of(const SeenExit& seen) {
  const WorkerExit& exit = seen.exit;
  // 0: unexplained; 1: a lost peer; 2: the end of a worker that we killed or that had not failed.
  const int explained = !exit.failed() || killed_by_agent(exit) ? 2 : peer_lost(exit) ? 1 : 0;
  const bool told = exit.node_lost.empty() ? exit.agent_did != AgentDid::kNothing : seen.after_kill;
  // Of several in one look a signal comes before an exit code: a worker that could still choose its
  // exit code had heard of the other's death.
  return std::tuple(explained, told, !killed_by_others(exit), seen.after_kill,
                    exit.chose_its_code());
}

}  // namespace

bool peer_lost(const WorkerExit& exit) {
  return exit.chose_its_code() && exit.exit_code == kExitPeerLost;
}

size_t primary_index(const std::vector<SeenExit>& exits) {
  const auto first = std::min_element(
      exits.begin(), exits.end(),
      [](const SeenExit& a, const SeenExit& b) { return order_of(a) < order_of(b); });
  LOCKSTEP_CHECK(first != exits.end(), "no worker has ended");
  return static_cast<size_t>(first - exits.begin());
}

int64_t lost_workers(const std::vector<SeenExit>& exits) {
  return std::count_if(exits.begin(), exits.end(), [](const SeenExit& seen) {
    const WorkerExit& exit = seen.exit;
    if (!exit.failed() || peer_lost(exit) || killed_by_agent(exit)) return false;
    return !seen.after_kill || killed_by_others(exit);
  });
}

}  // namespace lockstep::launcher::control
