// One node's part in the job. It obeys the coordinator that it follows, tells it what became of the
// workers, looks for it when it is silent, and takes over from it when it is a standby.
//
//   searching --Order--> following --silence--> searching --fence_ns--> its workers end, [P3]
//        +--- a standby, evict_ns x (1 + its number) ---> leads (JobNode makes a Coordinator)
//        +--- give_up_ns, however often it tried to lead meanwhile ---> leaves with 75; with 64
//             where all calls of that time found an agent with another secret
//
// LeaderSearch knows whom it follows, LocalWorkers what runs here. docs/PROTOCOL.md has the rules.
// Pure. Thread: one. Time: monotonic nanoseconds.
#pragma once

#include <optional>
#include <string>

#include "launcher/control/events.h"
#include "launcher/control/handover.h"
#include "launcher/control/leader_search.h"
#include "launcher/control/local_workers.h"
#include "launcher/control/rule.h"
#include "launcher/control/timing.h"

namespace lockstep::launcher::control {

struct MemberOptions {
  NodeId id = 0;
  std::string name;
  std::string address;  // of the agent's listener; empty: it cannot become coordinator
  uint64_t run = 0;     // Report::run
  Timing timing = {};
  Rule without = Rule::kNone;  // a test takes this rule out
};

class Member {
 public:
  // `leads`: this node's own Coordinator is the first one.
  Member(MemberOptions options, bool leads, int64_t now_ns);

  // What it does about an event goes to the end of `actions`.
  void on(const Order& order, int64_t now_ns, NodeActions& actions);
  void on(const NotLeader& answer, int64_t now_ns, NodeActions& actions);
  void on(const LeaderLost&, int64_t now_ns, NodeActions& actions);
  void on(const Spawned& event, int64_t now_ns, NodeActions& actions);
  void on(const SpawnFailed& event, int64_t now_ns, NodeActions& actions);
  void on(const WorkersExited& event, int64_t now_ns, NodeActions& actions);
  void on(const StopRequested& event, int64_t now_ns, NodeActions& actions);
  void on(const HealthSeen& event, int64_t now_ns, NodeActions& actions);
  void on(const Tick& event, int64_t now_ns, NodeActions& actions);
  void on(const SteppedDown& event, int64_t now_ns);

  // Not empty once: this node shall coordinate; it follows itself already.
  std::optional<Handover> take_lead() { return std::exchange(lead_, std::nullopt); }

  NodeId id() const { return options_.id; }
  const Peer& follows() const { return search_.leader(); }
  bool heard() const { return search_.answered(); }  // ... and it has answered
  int64_t committed() const { return workers_.generation(); }
  int64_t promised() const { return promised_; }
  int64_t alive() const { return workers_.alive(); }
  const Timing& timing() const { return options_.timing; }  // the coordinator's, once it was heard
  bool parked() const { return duty_ == Duty::kPark; }

 private:
  void pass_to(int64_t now_ns);
  bool accepts(const Order& order) const;
  void adopt(const Patience& patience);
  void prepare(const Order& order, NodeActions& actions);
  void run(const Order& order, NodeActions& actions);
  void end_workers(NodeActions& actions);
  void follow(Peer leader, NodeActions& actions);
  void search(NodeActions& actions);
  bool may_lead(int64_t silent_ns) const;
  void try_to_lead(int64_t silent_ns, NodeActions& actions);
  Leave leave_in_vain(int64_t alone_ns) const;
  void report(NodeActions& actions);
  void leave_when_empty(NodeActions& actions);

  MemberOptions options_;
  int64_t now_ns_;
  LeaderSearch search_;
  LocalWorkers workers_;
  int64_t promised_ = -1;  // its newest promise: the generation, and to whom
  NodeId promised_to_ = 0;
  bool promised_elsewhere_ = false;  // Report::promised_elsewhere
  Duty duty_ = Duty::kWait;          // of the last order that was not kWait
  Handover handover_;                // what it would take over; no members: it may not
  int64_t ordered_ns_;               // [P4] the last order that was not kWait
  int64_t run_ordered_ns_ = 0;       // ... that was kRun
  int32_t stops_ = 0, stop_signal_ = 0;
  HealthSeen health_;                                   // of its hardware
  int64_t sequence_ = 0, reported_ns_ = INT64_MIN / 2;  // of the last report
  bool news_ = true;                                    // there is something to report
  std::optional<Handover> lead_;                        // until take_lead
  std::optional<Leave> leave_;                          // once no worker is left
  std::string other_secret_;           // LeaderLost::other_secret, as it was said last
  int64_t other_secret_since_ns_ = 0;  // ... and every time since then
};

}  // namespace lockstep::launcher::control
