// The nodes that report to a coordinator: the last report of each of them, and which are silent.
//
//   Report --> admit --> hear, again and again --> lost (silence, a broken connection) --> remove
//
// Pure. Owns the nodes; a node stays where it is until `sweep`. Thread: one. Time: monotonic
// nanoseconds.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "launcher/control/message.h"
#include "launcher/control/rule.h"
#include "launcher/control/timing.h"

namespace lockstep::launcher::control {

// A node that reports, as the coordinator sees it.
struct Node {
  Peer peer;
  std::string name;
  int64_t heard_ns = 0;   // when its last report came
  int64_t joined_ns = 0;  // when its first one came
  int64_t gone_ns = -1;   // when its connection broke; -1: it is there
  bool suspect = false;   // it is silent, and not lost yet
  bool voter = false;     // it is a member of the last generation that was committed
  // It runs no more workers: an audit named one of its devices, or its hardware has failed.
  bool barred = false;
  bool kept = false;                // its hardware has failed, and the job cannot go on without it
  std::vector<std::string> health;  // Report::health
  bool slow = false;                // another node took its place for that
  // What its last report says (message.h).
  int64_t sequence = 0, promised = -1, committed = -1, members_of = -1;
  NodeId promised_to = 0, follows = 0;
  bool promised_elsewhere = false;
  // What it is in the generation that is prepared or runs.
  int64_t index = -1;    // -1: it is parked
  bool ready = false;    // it has promised the generation, and none of its workers lives
  bool spawned = false;  // its workers run
  std::vector<int32_t> pids;
  size_t exits_seen = 0;  // so many ends of its workers are known

  void leave_generation();
};

class Roster {
 public:
  // `barred`: names of nodes that run no workers.
  Roster(NodeId own, Timing timing, Rule without, const std::vector<std::string>& barred = {})
      : own_(own), timing_(timing), without_(without), barred_(barred.begin(), barred.end()) {}

  const std::vector<std::unique_ptr<Node>>& nodes() const { return nodes_; }  // as they came
  Node* find(NodeId id) const;  // null: it is unknown, or was removed
  // Requires: it is unknown. Its name says whether it is barred: an agent that is started again has
  // another id.
  Node& admit(const Report& report);
  void bar(Node& node);  // Requires: it is known, as in hear
  std::vector<std::string> barred_names() const { return {barred_.begin(), barred_.end()}; }
  // Takes over what the report says of the node. Requires: it is newer than the last one [P23].
  void hear(Node& node, const Report& report, int64_t now_ns);
  // The coordinator itself has slept for so long: nobody was silent meanwhile.
  void forgive_sleep(int64_t gap_ns);
  // Whether somebody has become suspect since the last look.
  bool look_for_silence(int64_t now_ns);
  std::string reason_lost(const Node& node, int64_t now_ns) const;  // empty: it is not lost

  // The node is lost: it is found no more, and counts until `sweep`. False: it was removed before.
  bool remove(const Node& node);
  void sweep();

  // [P15] Whether a node can be a member: it hears our orders, and its reports come.
  bool eligible(const Node& node) const { return !node.barred && reachable(node); }
  int64_t count_eligible() const;
  bool has_spare() const;       // a node that is eligible, idle and not slow
  size_t count_voters() const;  // reachable ones
  size_t count_eligible_voters() const;
  // Those of `first` keep their order; the others follow as they came, and those that are slow come
  // last.
  // Requires: `count` nodes are eligible.
  std::vector<Node*> choose(size_t count, const std::vector<NodeId>& first) const;
  int64_t max_promised() const { return max_promised_; }  // the newest generation that one promised

 private:
  bool reachable(const Node& node) const {
    return (node.follows == own_ && node.gone_ns < 0) || without_ == Rule::kP15;
  }

  const NodeId own_;
  const Timing timing_;
  const Rule without_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::unordered_map<NodeId, Node*> by_id_;
  std::set<std::string> barred_;  // names of nodes, also of those that are gone
  int64_t max_promised_ = -1;
};

}  // namespace lockstep::launcher::control
