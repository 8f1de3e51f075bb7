// One node's part in the job: obeys the coordinator it follows, fenced by generation; tells it what
// became of the workers; looks for it when it is silent; and, when it is a standby, takes over.
//
//   searching --Order--> following --silence--> searching --fence_ns--> its workers are killed
//        +--- a standby, evict_ns x (1 + its number) ---> leads (Node makes a Coordinator)
//        +--- give_up_ns, however often it tried to lead meanwhile ---> leaves with 75
// Who only gathers nodes, this one perhaps, excuses nobody from the fence.
//
// Fencing: an Order counts when its generation is newer than the one promised, or is that one and
// from the leader to whom it was promised. A promise is kept only when no worker is left alive: who
// has the promises of a majority of a generation's nodes knows that it can do nothing more.
// Pure. Thread: one. Time: monotonic nanoseconds.
#pragma once

#include <optional>

#include "launcher/control/machine.h"

namespace lockstep::launcher::control {

struct MemberOptions {
  NodeId id = 0;
  std::string name;
  std::string address;  // of the agent's listener; empty: it cannot become coordinator
  uint64_t run = 0;     // Report::run
  Timing timing;
};

// What a coordinator has to know of the one before it.
struct Inheritance {
  int64_t generation = -1;   // the last one that was committed; -1: none, the job begins
  std::vector<NodeId> roll;  // its members
  NodeId lost = 0;           // who led it
  double silent_ms = 0;      // and for how long it has said nothing
  Progress progress = {};    // of a worker of this node, for want of the lost one's
  int64_t safe_step = -1, restarts = 0;
  int64_t parked = 0;  // nodes that it had besides the members
};

class Member {
 public:
  // `leads`: this node's own Coordinator is the first one.
  Member(MemberOptions options, bool leads, int64_t now_ns);

  // What it does about an event goes to the end of `actions`.
  void on(const Order& order, int64_t now_ns, Actions& actions);
  void on(const NotLeader& answer, int64_t now_ns, Actions& actions);
  void on(const LeaderLost&, int64_t now_ns, Actions& actions);
  void on(const Spawned& event, int64_t now_ns, Actions& actions);
  void on(const SpawnFailed& event, int64_t now_ns, Actions& actions);
  void on(const WorkersExited& event, int64_t now_ns, Actions& actions);
  void on(const StopRequested& event, int64_t now_ns, Actions& actions);
  void on(const Tick& event, int64_t now_ns, Actions& actions);
  void on(const SteppedDown& event, int64_t now_ns);

  // Not empty once: this node shall coordinate; it follows itself already.
  std::optional<Inheritance> take_lead() { return std::exchange(lead_, std::nullopt); }

  NodeId id() const { return options_.id; }
  const Peer& follows() const { return leader_; }
  bool heard() const { return heard_; }  // ... and it has answered
  int64_t committed() const { return committed_; }
  int64_t promised() const { return promised_; }
  int64_t alive() const { return alive_; }
  bool parked() const { return parked_here_; }

 private:
  bool accepts(const Order& order) const;
  void prepare(const Order& order, Actions& actions);
  void run(const Order& order, Actions& actions);
  void kill(Actions& actions);
  void follow(Peer leader, Actions& actions);
  void look_further(Actions& actions);
  void report(Actions& actions);
  void leave_when_empty(Actions& actions);
  int standby_number() const;

  const MemberOptions options_;
  int64_t now_ns_;
  // Whom it follows.
  Peer leader_;
  NodeId order_from_ = 0;
  int64_t order_sequence_ = 0, heard_ns_, tried_ns_, reported_ns_ = INT64_MIN / 2;
  int64_t ruled_ns_;    // the last order of one that does more than to gather
  int64_t ran_ns_ = 0;  // ... that had it run something
  int64_t found_ns_;    // the last word of a coordinator other than one that this node tries to be
  bool trying_ = false;
  bool heard_ = false, news_ = true;
  size_t candidate_ = 0;
  std::vector<Peer> standbys_;
  std::vector<NodeId> roll_;
  int64_t roll_of_ = -1, safe_step_ = -1, restarts_ = 0, parked_ = 0;
  NodeId committed_by_ = 0;
  std::optional<Inheritance> lead_;
  // What it promised, and runs.
  int64_t promised_ = -1, committed_ = -1;
  NodeId promised_to_ = 0;
  int64_t alive_ = 0;
  bool strayed_ = false;  // since `committed_by_` had it run: promised to another one
  bool parked_here_ = false;
  bool spawning_ = false, killed_ = false, termed_ = false;
  std::vector<int32_t> pids_;
  std::string spawn_error_;
  std::vector<WorkerExit> exits_;  // of `committed_`
  size_t exits_confirmed_ = 0;
  int64_t exits_alive_ns_ = 0;  // when the first unconfirmed of them was last seen alive
  std::vector<Sample> samples_;
  int32_t stops_ = 0, stop_signal_ = 0;
  int64_t sequence_ = 0;
  std::optional<Leave> leave_;  // once no worker is left
};

}  // namespace lockstep::launcher::control
