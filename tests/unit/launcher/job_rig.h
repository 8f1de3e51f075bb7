// A job of a few nodes without sockets: every JobNode is real, and all that lies between them is a
// list of messages, a clock, and what the rendezvous says.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "launcher/control/job_node.h"

namespace lockstep::launcher::control {

class Job {
 public:
  static constexpr int64_t kTickNs = 40 * kMs, kSecondNs = 1000 * kMs;

  // Starts its nodes, 1 to max + spares. `without`: none of them keeps this rule.
  explicit Job(OnNodeLoss on_loss, int64_t min = 1, int64_t max = 3, int64_t spares = 0,
               Rule without = Rule::kNone);

  NodeId start() { return start(text("n", next_id_)); }
  // An agent of the node that has this name.
  NodeId start(const std::string& name);
  // Its machine is gone; the others' connections to it break.
  void lose(NodeId id);
  void worker_dies(NodeId id);
  // An audit named it: it ends by itself.
  void worker_computes_wrongly(NodeId id);
  // Counters of it say so.
  void hardware_fails(NodeId id) { tell(id, HealthSeen{"2 errors", {"2 errors"}}); }
  // Workers take so long for a slot from now on, one a tick, and this node's `factor` times that.
  void worker_is_slow(NodeId id, double factor) { slow_[id] = factor; }
  // Nothing goes from it or to it, and nobody is told.
  void cut(NodeId id, bool off) { move(id, off ? -static_cast<int>(id) : 0); }
  // Messages pass only between nodes of one side of the network. All begin on side 0.
  void move(NodeId id, int side) { nodes_.at(id).side = side; }
  // Its process is stopped: what comes meanwhile is lost.
  void sleep(NodeId id, bool asleep) { nodes_.at(id).asleep = asleep; }
  // These move before the orders of the next generation that is committed reach them.
  void move_at_commit(std::map<NodeId, int> sides) { move_at_commit_ = std::move(sides); }
  void tell(NodeId id, const NodeEvent& event);
  void new_ones_train(uint64_t run) { run_of_new_ = run; }
  void folder_hangs(bool hangs);  // for all nodes
  void folder_hangs(NodeId id, bool hangs);
  void break_connection(NodeId id);
  void pass(int64_t seconds) { pass_ms(seconds * 1000); }
  void pass_ms(int64_t ms);

  // How many run a worker, all of one generation; -1: they do not agree on it.
  int64_t running() const;
  // The generation whose worker the node runs; -1: none.
  int64_t runs(NodeId id) const;
  int64_t coordinators() const;
  NodeId leader() const;  // the first one that coordinates; 0: nobody does
  NodeId parked() const;
  size_t up() const { return nodes_.size(); }
  int64_t said(const std::string& event) const;     // so many times
  int64_t committed() const { return committed_; }  // so many generations
  const std::vector<Leave>& left() const { return left_; }
  int64_t lasted_s() const { return last_left_ns_ / kSecondNs; }
  // Who is left has left with 75, the coordinator for this reason.
  void expect_end(size_t nodes, const std::string& reason) const;

 private:
  struct Node {
    std::unique_ptr<JobNode> machine;
    int64_t rank = -1;
    int side = 0;
    bool asleep = false;
  };

  void on(NodeId id, const NodeEvent& event);
  Tick tick_of(NodeId id) const;
  void carry_out(NodeId id, NodeAction& action);
  bool reaches(NodeId from, NodeId to) const;
  void decide(NodeId id, const Succession& next);
  void end_worker(NodeId id, WorkerExit exit);
  void deliver();

  CoordinatorOptions options_;
  int64_t now_ns_ = kSecondNs, last_left_ns_ = 0, committed_ = 0;
  NodeId next_id_ = 1, rendezvous_ = 1;
  std::map<NodeId, Node> nodes_;
  Succession last_;
  std::map<NodeId, int> move_at_commit_;
  std::set<NodeId> folder_hangs_;  // for these
  std::map<NodeId, double> slow_;  // by what factor; empty: workers say nothing of their pace
  uint64_t run_of_new_ = 0;
  std::vector<LoggedEvent> events_;
  std::vector<std::pair<NodeId, Succession>> unanswered_;
  struct Mail {
    NodeId from, to;
    NodeEvent event;
  };
  std::deque<Mail> mail_;
  std::vector<NodeId> gone_;
  std::vector<Leave> left_;
};

}  // namespace lockstep::launcher::control
