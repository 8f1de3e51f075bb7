// What a new generation costs: one coordinator as it is, and a thousand members behind sockets.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>

#include "base/text.h"
#include "launcher/control/job_node.h"
#include "launcher/control/wire.h"
#include "launcher/process.h"
#include "launcher/run_files.h"
#include "tests/unit/launcher/net_rig.h"

namespace lockstep::launcher::control {
namespace {

constexpr NodeId kMembers = 1000;  // besides the coordinator's own
constexpr int kGenerations = 20;

// An agent without processes: a worker is there as soon as it shall be, and gone likewise.
class Shell {
 public:
  Shell(NodeId id, bool leads, std::function<void(NodeId, const Message&)> send)
      : send_(std::move(send)) {
    MemberOptions member{id, text("n", id), "127.0.0.1:1", {}};
    CoordinatorOptions options;
    options.id = id;
    options.min_nodes = options.max_nodes = kMembers + 1;
    options.supervisor.nproc_per_node = {1};
    options.supervisor.max_restarts = options.supervisor.max_no_progress = 1'000'000;
    // This machine is shared: nobody is lost, however slow.
    member.timing.evict_ns = options.timing.evict_ns = member.timing.fence_ns = 60'000 * kMs;
    options.timing.suspect_ns = options.timing.ack_ns = 60'000 * kMs;
    node_ = std::make_unique<JobNode>(member, options, leads, system_clock().monotonic_ns());
  }

  void feed(const Event& event) {
    for (const Action& action : node_->on(event, system_clock().monotonic_ns())) {
      if (const auto* out = std::get_if<Send>(&action)) {
        send_(out->to, out->message);
      } else if (const auto* spawn = std::get_if<SpawnWorkers>(&action)) {
        rank_ = spawn->order.first_rank;
        runs_ = true;
        feed(Spawned{{1}});
      } else if (std::holds_alternative<KillWorkers>(action)) {
        end_worker();
      } else if (const auto* lock = std::get_if<TakeLock>(&action)) {
        feed(LockAnswer{lock->generation, true});
      } else if (const auto* record = std::get_if<Record>(&action)) {
        if (record->event == "spawned") world_size_ = record->world_size, ++generations_;
      }
    }
  }
  void tick() {
    Tick tick;
    if (runs_) tick.samples.emplace_back();
    feed(tick);
  }
  void end_worker() {
    if (!std::exchange(runs_, false)) return;
    WorkerExit exit;
    exit.rank = static_cast<int>(rank_);
    exit.signal = SIGKILL;
    feed(WorkersExited{{exit}, system_clock().monotonic_ns()});
  }
  int generations() const { return generations_; }
  int64_t world_size() const { return world_size_; }

 private:
  std::function<void(NodeId, const Message&)> send_;
  std::unique_ptr<JobNode> node_;
  int64_t rank_ = 0, world_size_ = 0;
  bool runs_ = false;
  int generations_ = 0;
};

void run_members(const net::NetworkOptions& options, const net::Endpoint& at,
                 const std::atomic<bool>& stop) {
  net::Network network(options);
  std::map<net::PeerId, std::unique_ptr<Shell>> members;
  for (NodeId id = 2; id < kMembers + 2; ++id) {
    const net::PeerId peer = network.dial(at, net::kMaxTestMs);
    members[peer] = std::make_unique<Shell>(id, false, [&network, peer](NodeId, const Message& m) {
      network.send(peer, encode(m));
    });
  }
  double ticked_ms = 0;
  while (!stop) {
    for (const net::Event& event : network.wait(net::kWaitMs))
      if (const auto* received = std::get_if<net::Received>(&event))
        members.at(received->peer)->feed(Delivered{decode(received->payload).value()});
    if (net::now_ms() - ticked_ms < 200) continue;
    ticked_ms = net::now_ms();
    for (auto& [peer, member] : members) member->tick();
  }
}

TEST(ControlScale, AThousandAgentsFormAGeneration) {
  const auto folder = make_private_directory().value();
  net::NetworkOptions options{net::Secret::generate()};
  options.limits.handshake_ms = net::kMaxTestMs;
  Rendezvous rendezvous = Rendezvous::create(posix_file_system(), "", "job", folder).value();
  auto wire =
      Wire::open(options, rendezvous, 1, {"lo", "127.0.0.1"}, folder / "store").value();
  ASSERT_TRUE(wire->meet().value());
  Shell coordinator(1, true, [&](NodeId to, const Message& m) { wire->send(to, m); });
  std::atomic<bool> stop = false;
  std::thread members([&] { run_members(options, wire->listens_at(), stop); });
  const auto await_generation = [&](int count) {
    const double start_ms = net::now_ms();
    while (coordinator.generations() < count && net::now_ms() - start_ms < net::kMaxTestMs) {
      for (const Event& event : wire->wait(net::kWaitMs, {})) coordinator.feed(event);
      coordinator.tick();
    }
    return net::now_ms() - start_ms;
  };
  const double first_ms = await_generation(1);
  std::vector<double> all_ms;
  for (int i = 2; i < kGenerations + 2 && !HasFailure(); ++i) {
    EXPECT_EQ(coordinator.world_size(), static_cast<int64_t>(kMembers + 1));
    coordinator.end_worker();
    all_ms.push_back(await_generation(i));
  }
  stop = true;
  members.join();
  std::sort(all_ms.begin(), all_ms.end());
  std::printf("%d agents: first generation %.0f ms; from a worker's death to all workers of the "
              "next one: median %.0f ms, worst of %d %.0f ms\n", static_cast<int>(kMembers + 1),
              first_ms, all_ms[all_ms.size() / 2], kGenerations, all_ms.back());
  EXPECT_LT(all_ms.back(), 1000);
  EXPECT_TRUE(remove_tree(posix_file_system(), folder));
}

}  // namespace
}  // namespace lockstep::launcher::control
