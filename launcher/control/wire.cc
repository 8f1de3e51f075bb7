#include "launcher/control/wire.h"

#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"

namespace lockstep::launcher::control {
namespace {

constexpr int64_t kDialMs = 2000;   // of one try; the Member's own times are shorter
constexpr int64_t kLookMs = 100;    // between two looks at the rendezvous
constexpr int64_t kGiveUpMs = 500;  // before the last look: a dial says why it came to nothing

}  // namespace

Result<std::unique_ptr<Wire>> Wire::open(net::NetworkOptions options, Rendezvous& rendezvous,
                                         NodeId id, const net::LocalAddress& local,
                                         const std::filesystem::path& store_path) {
  LOCKSTEP_CHECK(id != 0, "a node without an id");
  std::unique_ptr<Wire> wire(new Wire(std::move(options), rendezvous, id, local));
  LOCKSTEP_RETURN_IF_ERROR(wire->network_.listen_local(store_path));
  return wire;
}

// HOST:PORT names the first coordinator by its address; without it whoever comes first is it.
Result<bool> Wire::meet() {
  const auto& fixed = rendezvous_.fixed();
  const net::Endpoint anywhere{local_.address, 0};
  auto at = network_.listen(fixed.value_or(anywhere));
  if (!at && !fixed) return at.error();
  if (!at) {
    LOCKSTEP_TRY(listens_at_, network_.listen(anywhere));
    if (!net::is_own_address(fixed->host)) return false;
    LOCKSTEP_RETURN_IF_ERROR(find_owner(*fixed, at.error()));
    return false;
  }
  listens_at_ = std::move(at).value();
  while (true) {
    LOCKSTEP_TRY(const Rendezvous::Found found, rendezvous_.newest());
    if (found.said >= 0) {
      LOCKSTEP_TRY(const Seen seen, look_for(found));
      if (seen == Seen::kAnswers) return false;
      if (seen == Seen::kSucceeded) continue;
    }
    LOCKSTEP_TRY(const bool mine, rendezvous_.claim(found, listens_at_));
    if (mine) return true;
  }
}

// The address is this machine's and the port is taken: by another agent of this job, which proves
// that it knows the secret, or by another program. Then nobody would ever coordinate, unless an
// agent does so elsewhere already.
Result<void> Wire::find_owner(const net::Endpoint& fixed, const Error& refused) {
  while (true) {
    LOCKSTEP_TRY(Rendezvous::Found found, rendezvous_.newest());
    LOCKSTEP_TRY(Seen seen, look_for(found));
    if (seen == Seen::kDead && found.at != fixed) {
      found.at = fixed;
      LOCKSTEP_TRY(seen, look_for(found));
    }
    if (seen == Seen::kAnswers) return {};
    if (seen == Seen::kDead)
      return Error{Code::kConfig,
                   text("--rdzv-endpoint ", fixed.str(),
                        ": this is an address of this machine, and listening there failed: it ",
                        refused.message,
                        "; no agent of this job answers there. Free the port, or give all nodes "
                        "another port or file:DIR")};
  }
}

Result<Wire::Seen> Wire::look_for(const Rendezvous::Found& found) {
  if (found.at.port == 0) return Seen::kDead;  // it has withdrawn, or been succeeded
  // Our own address: it was the one of an agent that is no more.
  const net::PeerId peer =
      found.at == listens_at_ ? 0 : network_.dial(found.at, kStaleMs - kGiveUpMs);
  const int64_t deadline_ns = system_clock().monotonic_ns() + kStaleMs * kMs;
  bool alive = false, other_secret = false;
  std::string why_not;
  while (system_clock().monotonic_ns() < deadline_ns) {
    for (const net::ConnectionEvent& event : network_.wait(kLookMs)) {
      std::vector<NodeEvent> too_early;  // it will be said again
      const auto* up = std::get_if<net::Connected>(&event);
      const auto* down = std::get_if<net::Closed>(&event);
      if (down != nullptr && down->peer == peer) {
        why_not = ": " + down->reason;
        other_secret = down->other_secret;
      }
      if (up == nullptr || up->peer != peer) {
        std::visit([&](const auto& e) { on(e, too_early); }, event);
        continue;
      }
      network_.close(peer, "it answers");
      return Seen::kAnswers;
    }
    LOCKSTEP_TRY(const Rendezvous::Found newest, rendezvous_.newest());
    alive = alive || newest.words != found.words;
    if (newest.said == found.said && (newest.at.port != 0 || newest.words == found.words)) continue;
    network_.close(peer, "it was succeeded");
    return Seen::kSucceeded;
  }
  if (alive)
    return Error{other_secret ? Code::kConfig : Code::kTimeout,
                 text("the coordinator at ", found.at.str(),
                      " is alive but cannot be reached from ", listens_at_.str(), why_not)};
  log_info("the coordinator at ", found.at.str(), " does not answer");
  return Seen::kDead;
}

void Wire::follow(const std::string& address) {
  const auto parsed = net::parse_endpoint(address);
  const net::Endpoint at = parsed ? parsed.value() : net::Endpoint{};
  if (leader_ != 0 && at == leader_at_) return;  // it may just be slow to answer
  if (leader_ != 0) network_.close(std::exchange(leader_, 0), "it follows another one");
  leader_up_ = false;
  leader_at_ = at;
  if (at.port != 0 && at != listens_at_) leader_ = network_.dial(at, kDialMs);
}

// Reports go to whom we follow; everything else to a node that reports to us.
void Wire::send(NodeId to, const Message& message) {
  std::string bytes = encode(message);
  if (std::holds_alternative<Report>(message)) {
    if (leader_up_) {
      network_.send(leader_, std::move(bytes));
    } else {
      unsent_report_ = std::move(bytes);
    }
  } else if (const auto found = peers_.find(to); found != peers_.end()) {
    network_.send(found->second, std::move(bytes));
  }
}

std::vector<NodeEvent> Wire::wait(int64_t timeout_ms, const std::vector<int>& descriptors) {
  std::vector<NodeEvent> out;
  for (const net::ConnectionEvent& event : network_.wait(timeout_ms, descriptors))
    std::visit([&](const auto& e) { on(e, out); }, event);
  return out;
}

void Wire::on(const net::Connected& event, std::vector<NodeEvent>&) {
  if (event.via == net::Via::kLocal) {
    workers_[event.peer] = true;
    return;
  }
  hosts_[event.peer] = event.remote.host;
  if (event.peer != leader_) return;
  leader_up_ = true;
  if (!unsent_report_.empty()) network_.send(leader_, std::exchange(unsent_report_, {}));
}

void Wire::on(const net::Received& event, std::vector<NodeEvent>& out) {
  if (workers_.contains(event.peer)) return from_worker(event.peer, event.payload);
  auto decoded = decode(event.payload);
  if (!decoded) {
    network_.close(event.peer, decoded.error().message);
    on(net::Closed{event.peer, decoded.error().message}, out);
    return;
  }
  Message message = std::move(decoded).value();
  if (auto* bytes = std::get_if<StoreBytes>(&message))
    return on_store_bytes(event.peer, std::move(*bytes));
  if (auto* report = std::get_if<Report>(&message)) {
    on_report(event.peer, *report);
  } else if (event.peer != leader_) {
    return;  // from one that we no longer follow
  }
  out.emplace_back(Delivered{std::move(message)});
}

void Wire::on_report(net::PeerId peer, Report& report) {
  LOCKSTEP_CHECK(is_sound(report), "a report of node ", report.id, " that decode has let pass");
  nodes_[peer] = report.id;
  peers_[report.id] = peer;
  if (report.address.empty()) return;
  net::Endpoint at;
  if (const auto said = net::parse_endpoint(report.address); said) at.port = said.value().port;
  at.host = hosts_[peer];
  report.address = at.port != 0 ? at.str() : "";
}

void Wire::on(const net::Closed& event, std::vector<NodeEvent>& out) {
  if (workers_.erase(event.peer) > 0) return worker_gone(event.peer);
  hosts_.erase(event.peer);
  if (event.peer == leader_) {
    leader_ = 0;
    leader_up_ = false;
    refuse_workers("the coordinator is gone: " + event.reason);
    out.emplace_back(LeaderLost{event.other_secret ? event.reason : ""});
  }
  const auto found = nodes_.find(event.peer);
  if (found == nodes_.end()) return;
  const NodeId node = found->second;
  nodes_.erase(found);
  if (const auto current = peers_.find(node);
      current == peers_.end() || current->second != event.peer)
    return;
  peers_.erase(node);
  if (store_) store_->on_node_gone(node);
  out.emplace_back(PeerGone{node});
}

void Wire::serve(int64_t generation, const std::string& nonce) {
  LOCKSTEP_CHECK(generation > served_, "the store of generation ", generation, " after ", served_);
  LOCKSTEP_CHECK(!nonce.empty(), "generation ", generation, " has no nonce");
  served_ = generation;
  if (!store_) store_.emplace();
  if (!space_.empty()) deliver(store_->forget(space_, "this generation is over"));
  space_ = text("g", generation, "-", nonce);
  store_->open(space_);
}

void Wire::stop_serving() {
  if (store_ && !space_.empty()) deliver(store_->forget(space_, "this node no longer coordinates"));
  store_.reset();
  space_.clear();
}

void Wire::from_worker(net::PeerId worker, std::string request) {
  if (store_) {
    deliver(store_->on_request({id_, worker}, request));
  } else if (leader_up_) {
    relay_.on_request(worker);
    network_.send(leader_, encode(StoreBytes{worker, false, std::move(request)}));
  } else {
    network_.close(worker, "the coordinator is not there");
  }
}

void Wire::worker_gone(net::PeerId worker) {
  relay_.on_gone(worker);
  if (store_) {
    store_->on_client_gone({id_, worker});
  } else if (leader_up_) {
    network_.send(leader_, encode(StoreBytes{worker, true, ""}));
  }
}

// A request of another node's worker, or the answer to one of ours.
void Wire::on_store_bytes(net::PeerId peer, StoreBytes bytes) {
  if (peer == leader_) {
    relay_.on_reply(bytes.worker);
    network_.send(bytes.worker, std::move(bytes.bytes));
    return;
  }
  const auto node = nodes_.find(peer);
  if (!store_ || node == nodes_.end()) return;
  if (bytes.gone) {
    store_->on_client_gone({node->second, bytes.worker});
  } else {
    deliver(store_->on_request({node->second, bytes.worker}, bytes.bytes));
  }
}

void Wire::deliver(const net::StoreReplies& replies) {
  for (const net::StoreReply& reply : replies) {
    if (reply.client.node == id_) {
      network_.send(reply.client.peer, reply.bytes);
    } else if (const auto found = peers_.find(reply.client.node); found != peers_.end()) {
      network_.send(found->second, encode(StoreBytes{reply.client.peer, false, reply.bytes}));
    }
  }
}

void Wire::refuse_workers(const std::string& reason) {
  for (const net::StoreReply& reply : relay_.refuse_all(reason))
    network_.send(reply.client.peer, reply.bytes);
}

}  // namespace lockstep::launcher::control
