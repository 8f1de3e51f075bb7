// Whom a node follows, and where it looks for a coordinator when that one is silent or lost.
//
//   searching --an order--> following --silence, a broken connection--> searching
//        +--it tries to lead itself--> leading --it steps down--> searching
//
// Pure. Thread: one. Time: monotonic nanoseconds.
#pragma once

#include <optional>
#include <vector>

#include "launcher/control/message.h"
#include "launcher/control/rule.h"
#include "launcher/control/timing.h"

namespace lockstep::launcher::control {

class LeaderSearch {
 public:
  LeaderSearch(NodeId own, Timing timing, Rule without, int64_t now_ns)
      : own_(own),
        timing_(timing),
        without_(without),
        heard_ns_(now_ns),
        tried_ns_(now_ns - timing.try_ns) {}

  const Peer& leader() const { return leader_; }  // id 0: as the rendezvous says
  bool answered() const { return answered_; }     // the leader has given an order, lately
  bool leads() const { return leader_.id == own_; }
  bool ever_answered() const { return order_from_ != 0; }
  const std::vector<Peer>& standbys() const { return standbys_; }
  int standby_number() const;  // of this node; -1: it is no standby
  int64_t silent_ns(int64_t now_ns) const { return now_ns - heard_ns_; }
  // For how long no other node has coordinated, whatever this one has tried meanwhile.
  int64_t alone_ns(int64_t now_ns) const { return now_ns - alone_since_ns_.value_or(heard_ns_); }

  void go_by(const Timing& timing);
  // [P23] Whether its leader has given no later order.
  bool is_new(const Order& order) const;
  // Takes the word of an order. Returns whether it is the leader's first one. Requires: it is new.
  bool hear(const Order& order, int64_t now_ns);
  void know_standbys(std::vector<Peer> standbys) { standbys_ = std::move(standbys); }

  void follow(Peer leader, int64_t now_ns);  // Requires: nobody has answered; it is not this node
  // The connection to the leader has ended. True: it is tried again, once.
  bool lose_connection(int64_t now_ns);
  // Where to look next, when it is time: the standbys in turn, then as the rendezvous says.
  std::optional<Peer> next_candidate(int64_t now_ns);
  void give_up_leader() { answered_ = false; }
  void lead(const std::string& address);  // from now on
  // ... until a generation runs, or another leads. Requires: nobody has answered.
  void try_to_lead(const std::string& address);
  void step_down(int64_t now_ns);      // Requires: it leads
  void pass(int64_t now_ns);           // time; this node hears itself
  void forgive_sleep(int64_t gap_ns);  // this node has slept for so long

 private:
  const NodeId own_;
  Timing timing_;
  const Rule without_;
  Peer leader_;
  bool answered_ = false;
  NodeId order_from_ = 0;  // of the last order
  int64_t order_sequence_ = 0;
  int64_t heard_ns_, tried_ns_;  // the last word of the leader; the last candidate
  size_t candidate_ = 0;
  std::vector<Peer> standbys_;
  // While this node tries to lead, or failed to: when another one was last heard to.
  std::optional<int64_t> alone_since_ns_;
};

}  // namespace lockstep::launcher::control
