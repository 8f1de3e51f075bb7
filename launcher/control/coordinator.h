// Decides which nodes make up each generation of a job, and has a Supervisor decide what becomes of
// its workers. One machine is a job of one node.
//
//   FORMING --enough nodes--> PREPARE(g) --all promised, quorum--> COMMIT(g) --> RUNNING(g)
//      ^                          |  no promise in time: without that node, g+1         |
//      +-- too few, wait ---------+<--------- all workers of g are buried --------------+
//                                                                      --> FINISHING --> over
// Quorum: to follow generation b takes the promises of at least half of b's nodes, so that none of
// its workers can still do something where they are needed, and the rendezvous, which lets one
// follow (succession.h): another coordinator may have half of them too, or a late node begin anew.
// Who led b need not ask when more than half of the nodes before b have run it and more than half
// of b's nodes have promised to nobody else since: no other coordinator can have half of either.
// A node is evicted when it is silent for evict_ns, when its connection broke and it does not come
// back, or when it makes no promise in time. Surplus nodes are parked, never an error.
// Whoever learns of a newer generation than its own steps down.
// Pure. Thread: one. Time: monotonic nanoseconds.
#pragma once

#include <memory>
#include <unordered_map>
#include <unordered_set>

#include "launcher/control/coordinator_options.h"
#include "launcher/control/machine.h"
#include "launcher/control/member.h"

namespace lockstep::launcher::control {

class Coordinator {
 public:
  // A node that reports, as the coordinator sees it.
  struct Node {
    Peer peer;
    std::string name;
    int64_t heard_ns = 0, gone_ns = -1;  // the last report; when its connection broke
    int64_t index = -1;                  // in the generation that is prepared or runs; -1: parked
    std::vector<int32_t> pids;           // of its workers
    bool suspect = false;
    // From its reports.
    int64_t sequence = 0, promised = -1, committed = -1, roll_of = -1;
    NodeId promised_to = 0, follows = 0;
    bool strayed = false;
    int64_t alive = 0;
    // Of this generation.
    bool ready = false, spawned = false;
    size_t exits_seen = 0;
    bool voter = false;  // member of the last one that was committed
  };

  Coordinator(CoordinatorOptions options, Inheritance before, int64_t now_ns);

  void on(const Report& report, int64_t now_ns, Actions& actions);
  void on(const PeerGone& event, int64_t now_ns, Actions& actions);
  void on(const Decided& event, int64_t now_ns, Actions& actions);
  void on(const Superseded&, int64_t now_ns, Actions& actions);
  void on(int64_t now_ns, Actions& actions);  // time has passed

  const Supervisor& supervisor() const { return supervisor_; }
  const std::vector<std::unique_ptr<Node>>& nodes() const { return nodes_; }
  const Node* node_of(int64_t rank) const;      // whose workers `rank` is; null: it is lost
  int64_t first_rank(const Node& node) const {  // -1: parked
    return node.index < 0 ? -1 : node.index * per_node_;
  }
  int32_t pid_of(int64_t rank) const;
  Progress progress_of(int64_t rank) const;
  int64_t committed() const { return base_; }  // the last generation, also by the one before us
  bool rules() const { return base_ > before_.generation; }  // ... by us: nobody else leads

 private:
  enum class Stage { kGathering, kPreparing, kRunning, kFinishing, kOver };

  Node* admit(const Report& report);
  bool dismisses(const Report& report);
  void note(Node& node, const Report& report);
  void note_running(Node& node, const Report& report);
  void evict(Node& node, const std::string& why);
  void remove_evicted();
  void scan();
  std::string reason_to_evict(const Node& node) const;

  Nodes plan();
  Nodes plan_first(int64_t have);
  Nodes wait_for(int64_t limit_ns, std::string otherwise);
  bool eligible(const Node& node) const { return node.follows == options_.id && node.gone_ns < 0; }
  std::vector<Node*> choose(size_t count);
  size_t voters() const;
  bool may_stop() const;
  bool need_not_ask() const;
  bool lacks_quorum() const;  // of one that would succeed: the others may go on without it
  void gather();
  void wait_on();
  void prepare(const SpawnAll& action);
  void try_commit();
  Succession succession(int64_t generation, bool tie) const;
  void commit();
  void flush_exits();
  void feed(const launcher::Event& event);
  Record with_pids(Record record) const;
  void finish(const Finish& action);
  void step_down(std::string reason, bool succeeded = false);
  void settle();  // what the event at hand has led to
  void order(const Node& node);
  Order order_for(const Node& node);
  void record(std::string event, std::string reason);
  void leave();

  const CoordinatorOptions options_;
  const Inheritance before_;
  Supervisor supervisor_;
  int64_t now_ns_, scanned_ns_ = 0, fed_ns_ = 0;
  Actions* actions_ = nullptr;  // of the call at hand
  Stage stage_ = Stage::kGathering;
  std::vector<std::unique_ptr<Node>> nodes_;  // in the order they came
  std::unordered_map<NodeId, Node*> by_id_;
  std::unordered_map<NodeId, Leave> dismissed_;  // why
  std::vector<Node*> evicted_;
  // The last generation that was committed: its number, its members' ids.
  int64_t base_;
  std::vector<NodeId> roll_;
  std::vector<Peer> standbys_;
  std::unordered_set<NodeId> not_yet_run_;  // it, of the nodes of the one before
  size_t before_it_ = 0;                    // so many were those
  // The one that is prepared or runs.
  int64_t generation_;
  std::vector<Node*> members_;  // null: lost
  std::string nonce_;
  int64_t planned_ = 0, per_node_ = 0, prepared_ns_ = 0, proposed_ns_ = 0;
  size_t ready_ = 0, spawned_ = 0, reaped_ = 0;
  bool proposed_ = false, stop_ = false, kill_ = false, claimed_ = false, granted_ = false;
  std::vector<Sample> samples_;
  std::vector<bool> ended_;          // by rank
  std::vector<WorkerExit> pending_;  // not yet told to the supervisor
  int64_t pending_alive_ns_ = 0;
  // What is to be done before the event at hand is settled.
  bool begun_ = false, broadcast_ = false, regroup_ = false, samples_new_ = false;
  bool lost_some_ = false;               // nodes, since the last commit
  int64_t waiting_ns_, enough_ns_ = -1;  // for nodes; since when (the last) there are enough
  int64_t max_promised_ = -1, sequence_;
  int32_t stops_ = 0;
  Finish finish_{};
  bool for_all_ = false;  // it ends the job, not only what a lesser part of the nodes does
  int64_t finish_ns_ = 0, reminded_ns_;
};

}  // namespace lockstep::launcher::control
