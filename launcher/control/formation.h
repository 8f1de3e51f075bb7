// The generation that a coordinator forms or runs: its number, its members and their ranks, and how
// far it has come. Each state carries what only it needs.
//
//   Gathering --enough nodes--> Preparing --all promised, quorum--> Running
//      ^                            |  a member is lost: anew          |
//      +------- too few ------------+<--- all workers have ended ------+--> Finishing --> Over
//
// Pure. Borrows the nodes, which a roster owns. Thread: one. Time: monotonic nanoseconds.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "launcher/control/events.h"
#include "launcher/control/roster.h"
#include "launcher/control/rule.h"

namespace lockstep::launcher::control {

// Too few nodes are there, or none has been counted yet.
struct Gathering {};
// Every member was asked for its promise.
struct Preparing {
  int64_t since_ns = 0;
  size_t ready = 0;          // so many members have promised; counted, for there may be thousands
  int64_t proposed_ns = -1;  // when the rendezvous was asked; -1: it was not
};
// The generation is committed: every member was told to run its workers.
struct Running {
  size_t spawned = 0;               // so many members have spawned them, or are lost
  bool stop = false, kill = false;  // what the workers were told
  bool change = false;
  std::vector<bool> ended;             // by rank
  std::vector<WorkerExit> unreported;  // ends that the supervisor has not been told of
  int64_t unreported_alive_ns = 0;     // when the first of those workers was last known to live
  bool samples_new = false;            // since the supervisor saw them
  int64_t sampled_ns = 0;              // when that was
};
// The job has ended; the nodes are told.
struct Finishing {
  Finish end;
  int64_t since_ns = 0;
  bool for_all = false;  // it ends the job, and not only what a lesser part of the nodes does
};
struct Over {};

class Formation {
 public:
  // `generation`: the number of the first one, at least.
  Formation(int64_t generation, Rule without) : without_(without), generation_(generation) {}

  // Null: it is in another state.
  template <typename State>
  State* in() {
    return std::get_if<State>(&state_);
  }
  template <typename State>
  const State* in() const {
    return std::get_if<State>(&state_);
  }
  // Requires: an arrow of the picture above leads there, or to Over.
  template <typename State>
  void enter(State state) {
    change(AnyState(std::move(state)));
  }

  int64_t generation() const { return generation_; }
  void number_at_least(int64_t generation);  // Requires: Gathering
  int64_t world_size() const { return static_cast<int64_t>(samples_.size()); }
  const std::vector<Node*>& members() const { return members_; }   // by index; null: it is lost
  const std::vector<Sample>& samples() const { return samples_; }  // by rank
  const std::string& nonce() const { return nonce_; }
  int64_t per_node() const;                     // ranks; 0: no generation was prepared yet
  int64_t first_rank(const Node& node) const {  // -1: it is parked
    return node.index < 0 ? -1 : node.index * per_node();
  }
  // Whether it is a member; `or_was`: or was one that is lost.
  bool is_member(const Node& node, bool or_was = false) const;
  const Node* node_of(int64_t rank) const;  // null: it is lost
  int32_t pid_of(int64_t rank) const;       // -1: it is not known
  std::vector<int32_t> all_pids() const;
  const std::string& node_name_of(int64_t rank) const;  // also when it is lost; "": unknown
  Progress progress_of(int64_t rank) const;
  // The nodes that may take over from `coordinator`: two members far apart in the order of nodes,
  // so that the loss of one rack does not take both.
  std::vector<Peer> standbys(NodeId coordinator) const;

  // Enters Preparing. Requires: all workers of the generation before have ended; the number is a
  // newer one; the members are all different, and of no generation.
  void prepare(const Prepare& generation, std::vector<Node*> members, std::string nonce,
               int64_t now_ns);
  // Preparing: the node may have promised the generation to the coordinator `leader`.
  void note_promise(Node& node, const Report& report, NodeId leader);
  bool all_promised() const;
  bool lost_a_member() const;
  // Preparing: why the node is lost, which had long enough to promise it to `leader`; empty: it is
  // not.
  std::string reason_late(const Node& node, NodeId leader, const Timing& timing,
                          int64_t now_ns) const;

  // Enters Running. Requires: all members have promised the generation [P5].
  void run();
  // Running: what the report of a member says of its workers.
  void note_spawned(Node& node, const Report& report);
  void note_samples(const Node& node, const Report& report);
  void note_exits(Node& node, const Report& report, int64_t now_ns);
  bool all_spawned() const;
  bool all_ended() const;
  // The ends of which the supervisor has not been told; it has from now on.
  WorkersExited take_exits();

  // The member is lost, and its workers with it; the first time that this is said.
  void lose(Node& node, const std::string& why);

 private:
  using AnyState = std::variant<Gathering, Preparing, Running, Finishing, Over>;
  void change(AnyState state);
  Running& running();  // Requires: Running

  const Rule without_;
  AnyState state_;
  int64_t generation_;
  std::vector<Node*> members_;
  std::vector<std::string> names_;  // of the members, also of those that are lost since
  std::vector<Sample> samples_;
  std::string nonce_;  // tells this generation's store from that of another coordinator
};

}  // namespace lockstep::launcher::control
