// A new generation of a thousand nodes: their machines and a coordinator's, over real connections.
// Workers are pretended: they start and die at once. The times are printed and judge nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/text.h"
#include "launcher/control/job_node.h"
#include "tests/unit/launcher/net_rig.h"

namespace lockstep::launcher::control {
namespace {

constexpr int64_t kNodes = 1000;  // besides the coordinator's own
constexpr int kRounds = 30;
constexpr int64_t kTickNs = 50 * kMs;

CoordinatorOptions options_of(NodeId id) {
  CoordinatorOptions options;
  options.id = id;
  options.min_nodes = options.max_nodes = kNodes + 1;
  options.last_call_ns = 0;
  options.supervisor.nproc_per_node = {1};
  options.supervisor.max_restarts = options.supervisor.max_no_progress = 1'000'000;
  options.supervisor.hang_s = 3600;
  // Both ends share this machine's cores with others.
  options.timing.evict_ns = options.timing.ack_ns = 20'000 * kMs;
  options.timing.fence_ns = 40'000 * kMs;
  return options;
}

// One node: its machines, and the worker that it believes to have. `transmit` takes what it sends.
template <typename Transmit>
class Node {
 public:
  Node(NodeId id, bool leads, Transmit transmit)
      : machine_({.id = id,
                  .name = text("n", id),
                  .address = "127.0.0.1:1",
                  .timing = options_of(id).timing},
                 options_of(id), leads, now_ns()),
        transmit_(std::move(transmit)) {}

  static int64_t now_ns() { return system_clock().monotonic_ns(); }
  // The generation of its worker; -1: it has none.
  int64_t runs() const { return runs_; }

  void on(const NodeEvent& event) {
    NodeActions actions = machine_.on(event, now_ns());
    for (NodeAction& action : actions) {
      if (auto* send = std::get_if<Send>(&action)) {
        transmit_(send->to, encode(send->message));
      } else if (const auto* spawn = std::get_if<SpawnWorkers>(&action)) {
        runs_ = spawn->order.generation;
        rank_ = static_cast<int>(spawn->order.first_rank);
        on(Spawned{{1}});
      } else if (std::holds_alternative<KillWorkers>(action)) {
        kill_worker();
      } else if (const auto* proposal = std::get_if<Propose>(&action)) {
        on(Decided{proposal->next.base, proposal->next.generation, true, ""});
      }
    }
  }
  void tick() {
    if (const int64_t now = now_ns(); now - ticked_ns_ >= kTickNs) {
      ticked_ns_ = now;
      on(Tick{runs_ >= 0 ? std::vector<Sample>(1) : std::vector<Sample>()});
    }
  }
  void kill_worker() {
    if (std::exchange(runs_, -1) < 0) return;
    WorkerExit exit;
    exit.rank = rank_;
    exit.signal = SIGKILL;
    exit.agent_did = AgentDid::kKilled;
    on(WorkersExited{{exit}, now_ns()});
  }

 private:
  JobNode machine_;
  Transmit transmit_;
  int64_t runs_ = -1, ticked_ns_ = 0;
  int rank_ = 0;
};

void lead(net::Network& network, const std::atomic<bool>& stop) {
  std::unordered_map<NodeId, net::PeerId> peers;
  Node coordinator(1, true, [&](NodeId to, std::string bytes) {
    if (const auto found = peers.find(to); found != peers.end())
      network.send(found->second, std::move(bytes));
  });
  while (!stop) {
    for (net::ConnectionEvent& event : network.wait(net::kWaitMs)) {
      auto* received = std::get_if<net::Received>(&event);
      if (received == nullptr) continue;
      Message message = decode(received->payload).value();
      peers[std::get<Report>(message).id] = received->peer;
      coordinator.on(Delivered{std::move(message)});
    }
    coordinator.tick();
  }
}

TEST(ControlScale, ANewGenerationOfAThousandNodes) {
  const net::Secret secret = net::Secret::generate();
  net::NetworkOptions options{secret};
  options.limits.handshake_ms = net::kMaxTestMs;
  net::Network server(options), network(options);
  const net::Endpoint at = server.listen({"127.0.0.1", 0}).value();
  std::atomic<bool> stop = false;
  std::thread coordinator([&] { lead(server, stop); });

  const auto transmit_by = [&](net::PeerId peer) {
    return [&network, peer](NodeId, std::string bytes) { network.send(peer, std::move(bytes)); };
  };
  std::vector<Node<decltype(transmit_by(0))>> nodes;
  std::unordered_map<net::PeerId, size_t> at_peer;
  for (int64_t i = 0; i < kNodes; ++i) {
    const net::PeerId peer = network.dial(at, net::kMaxTestMs);
    at_peer[peer] = nodes.size();
    nodes.emplace_back(static_cast<NodeId>(i + 2), false, transmit_by(peer));
  }
  // Until all run a generation newer than `last`; its number, or -1 when that does not come.
  const auto await_newer = [&](int64_t last) -> int64_t {
    const double limit_ms = net::now_ms() + static_cast<double>(net::kMaxTestMs);
    while (net::now_ms() < limit_ms) {
      for (net::ConnectionEvent& event : network.wait(net::kWaitMs))
        if (auto* received = std::get_if<net::Received>(&event))
          nodes[at_peer[received->peer]].on(Delivered{decode(received->payload).value()});
      for (auto& node : nodes) node.tick();
      const int64_t first = nodes.front().runs();
      if (first > last && std::all_of(nodes.begin(), nodes.end(),
                                      [&](const auto& node) { return node.runs() == first; }))
        return first;
    }
    return -1;
  };
  const double start_ms = net::now_ms();
  int64_t generation = await_newer(-1);
  const double joined_ms = net::now_ms() - start_ms;
  std::vector<double> rounds_ms;
  for (size_t round = 0; round < kRounds && generation >= 0; ++round) {
    const double killed_ms = net::now_ms();
    nodes[round * 31 % nodes.size()].kill_worker();
    generation = await_newer(generation);
    rounds_ms.push_back(net::now_ms() - killed_ms);
  }
  stop = true;
  coordinator.join();
  ASSERT_GE(generation, 0) << "round " << rounds_ms.size();
  std::sort(rounds_ms.begin(), rounds_ms.end());
  std::printf(
      "%zu nodes joined in %.0f ms; a new generation after a worker's death: median %.0f "
      "ms, largest of %d %.0f ms\n",
      nodes.size(), joined_ms, rounds_ms[kRounds / 2], kRounds, rounds_ms.back());
}

}  // namespace
}  // namespace lockstep::launcher::control
