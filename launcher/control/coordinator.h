// Decides which nodes make up each generation of a job, and has a Supervisor decide what becomes of
// its workers. One machine is a job of one node.
//
//   Roster          which nodes are there, and which of them are silent or lost
//   GenerationSize  how many of them the next generation gets, and how long it waits for more
//   Quorum          whether that generation may follow the one before it
//   Formation       the generation: gathering, preparing, running, finishing, over
//
// It evicts a node that is silent for evict_ns, a node whose connection broke and does not come
// back, and a node that does not promise in time. Surplus nodes are parked; that is no error.
// A node of whose workers an audit named one is parked for good, also the coordinator's own, and
// also when its agent is started again: it computes no more. So is one whose hardware has failed,
// where the others can go on without it. Either node says so in each report, also to a coordinator
// after this one, and standbys are told the names of such nodes.
// The rules [P1], [P2], … are those of docs/PROTOCOL.md.
// Pure. Thread: one. Time: monotonic nanoseconds.
#pragma once

#include <memory>
#include <unordered_map>

#include "launcher/control/coordinator_options.h"
#include "launcher/control/events.h"
#include "launcher/control/formation.h"
#include "launcher/control/generation_size.h"
#include "launcher/control/member.h"
#include "launcher/control/quorum.h"
#include "launcher/control/roster.h"

namespace lockstep::launcher::control {

class Coordinator {
 public:
  Coordinator(CoordinatorOptions options, Handover before, int64_t now_ns);

  void on(const Report& report, int64_t now_ns, NodeActions& actions);
  void on(const PeerGone& event, int64_t now_ns, NodeActions& actions);
  void on(const Decided& event, int64_t now_ns, NodeActions& actions);
  void on(const Superseded&, int64_t now_ns, NodeActions& actions);
  void on(int64_t now_ns, NodeActions& actions);  // time has passed

  const Supervisor& supervisor() const { return supervisor_; }
  const std::vector<std::unique_ptr<Node>>& nodes() const { return roster_.nodes(); }
  const Formation& formation() const { return formation_; }
  // The last generation that was committed, also by the coordinator before this one.
  int64_t committed() const { return quorum_.base(); }
  // Whether this coordinator has committed it: nobody else coordinates then.
  bool has_committed() const { return quorum_.has_committed(); }

 private:
  // One call of on: it has the actions for as long as it lasts, and there is one at a time.
  class Call {
   public:
    Call(Coordinator& owner, int64_t now_ns, NodeActions& actions);
    ~Call() { owner_.actions_ = nullptr; }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    Coordinator& owner_;
  };
  NodeActions& out();  // Requires: a call is at hand
  Node& admit(const Report& report);
  bool refuses(const Report& report);
  bool is_yet_to_start_over(const Report& report) const;
  void note_running(Node& node, const Report& report);
  void bar_if_wrong(Node& node, const Report& report);
  void note_health(Node& node, const Report& report);
  bool can_do_without(const Node& node) const;
  void bar(Node& node, const std::string& why);
  void replace(const ReplaceRank& action);
  void look_for_growth();
  void say_idle(int64_t spares);
  void ask_for_change(int64_t nodes, const std::string& why);
  void leave_out(Node& node, const std::string& why);
  void look_at_nodes();
  void evict(Node& node, const std::string& why);

  Nodes plan();
  void gather();
  void take_over();
  void keep_waiting();
  void prepare(const Prepare& action);
  void try_commit();
  Quorum::Promises promises() const;
  void commit();
  void tell_exits();
  void feed(const JobEvent& event);
  LoggedEvent with_places(LoggedEvent event) const;
  GenerationSize::Counted counted() const;
  void finish(const Finish& action);
  void step_down(std::string reason, bool succeeded = false);
  void settle();  // does what the event at hand has led to
  void order(const Node& node);
  Order order_for(const Node& node);  // the whole state that the node shall have
  void fill_run(Order& order, const Node& node) const;
  void record(std::string event, std::string reason);

  const CoordinatorOptions options_;
  const Handover before_;
  Supervisor supervisor_;
  Roster roster_;
  std::unordered_map<NodeId, Leave> refused_;  // nodes that are told to leave, and why
  GenerationSize size_;
  Quorum quorum_;
  Formation formation_;
  std::vector<Peer> standbys_;  // these may take over the last generation that was committed
  int64_t now_ns_;
  int64_t committed_ns_ = 0;        // when the last generation was
  int64_t change_to_ = 0;           // so many nodes at most; 0: no planned change takes more in
  int64_t said_idle_ = 0;           // the spares of this generation that bring no speed
  int64_t looked_ns_ = 0;           // at all nodes
  int64_t reminded_ns_;             // when it last said that it waits
  int64_t sequence_;                // of the last order
  int32_t stops_ = 0;               // so many requests to stop were obeyed
  NodeActions* actions_ = nullptr;  // of the call at hand; null: there is none
  bool orders_changed_ = false;     // in the call at hand: each node gets its order
};

}  // namespace lockstep::launcher::control
