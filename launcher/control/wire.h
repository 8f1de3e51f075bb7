// One agent's connections to the other nodes: to the node it follows, and from those that report to
// it. It also carries its workers' store requests to the coordinator's store, and the answers back.
//
//   worker --(Unix socket)--> Wire --StoreBytes--> coordinator's Wire: StoreServer --> … back
//
// A node's host is the one seen on its connection; the node itself says only its port. Thread: one.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/control/events.h"
#include "launcher/control/rendezvous.h"
#include "launcher/control/timing.h"
#include "launcher/net/network.h"
#include "launcher/net/store_server.h"

namespace lockstep::launcher::control {

class Wire {
 public:
  // Listens at `local` and, for this node's workers, at the Unix socket `store_path`.
  // Borrows the rendezvous. Errors: kConfig, kIo.
  static Result<std::unique_ptr<Wire>> open(net::NetworkOptions options, Rendezvous& rendezvous,
                                            NodeId id, const net::LocalAddress& local,
                                            const std::filesystem::path& store_path);

  const net::Endpoint& listens_at() const { return listens_at_; }
  const net::LocalAddress& local() const { return local_; }
  // Whether this node is the job's first coordinator. The coordinator that the rendezvous names is
  // dead when it neither answers nor beats nor is succeeded for kStaleMs. When it beats and does
  // not answer, the network or the secret is at fault. When HOST:PORT is an address of this machine
  // and is taken, an agent of this job must answer there. Errors: kConfig (also: it beats, and has
  // another secret), kIo, kTimeout (it beats).
  Result<bool> meet();
  static constexpr int64_t kBeatMs = 5'000;  // at least so often a coordinator beats

  void follow(const std::string& address);
  void send(NodeId to, const Message& message);
  // Coordinator: serve the store of this generation, and no older one. Requires: it is a newer one.
  void serve(int64_t generation, const std::string& nonce);
  void stop_serving();

  std::vector<NodeEvent> wait(int64_t timeout_ms, const std::vector<int>& descriptors);

 private:
  static constexpr int64_t kStaleMs = kBeatMs + 1'500;
  enum class Seen { kAnswers, kSucceeded, kDead };

  Wire(net::NetworkOptions options, Rendezvous& rendezvous, NodeId id, net::LocalAddress local)
      : network_(std::move(options)), rendezvous_(rendezvous), id_(id), local_(std::move(local)) {}
  Result<void> find_owner(const net::Endpoint& fixed, const Error& refused);
  Result<Seen> look_for(const Rendezvous::Found& found);
  void on(const net::Connected& event, std::vector<NodeEvent>& out);
  void on(const net::Received& event, std::vector<NodeEvent>& out);
  void on(const net::Closed& event, std::vector<NodeEvent>& out);
  void on_report(net::PeerId peer, Report& report);
  void on_store_bytes(net::PeerId peer, StoreBytes bytes);
  void from_worker(net::PeerId worker, std::string request);
  void worker_gone(net::PeerId worker);
  void deliver(const net::StoreReplies& replies);
  void refuse_workers(const std::string& reason);

  net::Network network_;
  Rendezvous& rendezvous_;
  const NodeId id_;
  const net::LocalAddress local_;
  net::Endpoint listens_at_;
  net::PeerId leader_ = 0;  // the connection to whom we follow
  net::Endpoint leader_at_;
  bool leader_up_ = false;
  std::string unsent_report_;  // until it is
  std::map<net::PeerId, std::string> hosts_;
  std::map<net::PeerId, NodeId> nodes_;  // who reports on it
  std::map<NodeId, net::PeerId> peers_;
  std::map<net::PeerId, bool> workers_;  // connections of our workers
  std::optional<net::StoreServer> store_;
  int64_t served_ = -1;  // the newest generation that was
  std::string space_;    // of the generation that is served
  net::StoreRelay relay_;
};

}  // namespace lockstep::launcher::control
