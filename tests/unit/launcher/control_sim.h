// A job of up to thousands of nodes on one thread: a virtual clock, a network that loses, delays,
// doubles and reorders messages and falls apart, nodes that crash, freeze and come back, workers
// that die, and a training that goes on while all workers of a generation live. Agents meet at a
// rendezvous on a disk that all see, whatever the network does. All of it follows from the seed.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "control_sim_result.h"
#include "launcher/control/job_node.h"

namespace lockstep::launcher::control {

class Sim {
 public:
  // Nobody keeps the rule `without`.
  explicit Sim(uint64_t seed, Rule without = Rule::kNone, bool loud = false, SimNodes nodes = {});
  SimResult run();
  int64_t nodes() const { return result_.nodes; }

 private:
  struct Machine {
    NodeId id = 0;
    std::unique_ptr<JobNode> node;  // null: it has crashed or left
    int64_t frozen_until_ns = 0;
    int side = 0;                                           // of the partition
    bool left = false, starts_over = false, fails = false;  // fails: its hardware has failed
    // It looks for the coordinator for the first time (Wire::meet).
    int64_t meets_since_ns = -1, meets_number = -1;
    int64_t looked_ns = 0;            // whether it is still the newest at the rendezvous
    std::optional<Succession> leads;  // it was let say this
    int64_t decided_ns = 0;           // when its last proposal will have been
    // Its worker.
    int64_t generation = -1;  // 0 <= : it was spawned for it
    int64_t rank = -1;
    bool alive = false, dying = false;
    bool asked_to_change = false;  // by its agent [P24]
    int64_t apart_since_ns = -1;   // it cannot reach who leads this generation
    Progress progress;
  };
  // clang-format off
  enum class Kind : uint8_t { kTick, kDeliver, kSpawned, kWorkerEnd, kWorkerSaved, kStep, kFault,
                              kPropose, kMeet, kLost, kGone, kCommit, kWorkerChanged };
  // clang-format on
  struct Item {
    int64_t at_ns = 0;
    uint64_t order = 0;
    Kind kind = Kind::kTick;
    size_t machine = 0;
    NodeId incarnation = 0;
    int64_t number = 0;  // generation, exit code, …
    std::shared_ptr<Message> message;
    Succession next = {};  // of a proposal
    int64_t step = 0;      // of a commit
    bool operator>(const Item& o) const {
      return at_ns != o.at_ns ? at_ns > o.at_ns : order > o.order;
    }
  };
  struct Training {  // of one generation
    NodeId leader = 0;
    int64_t world = 0, alive = 0;
    int64_t step = -1, committed = -1;  // step -1: its workers have never all been there
    std::set<int64_t> ranks;
    std::vector<Peer> standbys;
    bool stepping = false, saving = false, changes = false;
  };

  bool large() const { return machines_.size() > 512; }  // of more some worker always ends slowly
  uint64_t draw(uint64_t limit);
  bool chance(double p) { return static_cast<double>(draw(1u << 30)) < p * (1u << 30); }
  int64_t between_ms(int64_t low, int64_t high);
  void broken(const std::string& rule);
  void say(const std::string& words);

  void push(int64_t after_ns, Kind kind, size_t machine, int64_t number = 0,
            std::shared_ptr<Message> message = nullptr);
  void handle(Item& item);
  void feed(size_t machine, const NodeEvent& event);
  void carry_out(size_t machine, NodeAction& action);
  void send(size_t from, Send& send);
  bool cut(size_t a, size_t b) const { return machines_[a].side != machines_[b].side; }
  void start(size_t machine, bool over = false);
  void meet(size_t machine);
  void begin(size_t machine, bool leads);
  void check_fence(Machine& machine);
  bool decide(Machine& machine, const Succession& next);
  void propose(const Item& item);
  void beat(size_t machine);
  void withdraw(const Machine& machine, bool over);
  void stop_machine(size_t machine, bool noticed);
  void spawn(size_t machine, const Order& order);
  void check_order(const Machine& machine, Training& training, const Order& order);
  void end_worker(size_t machine, int exit_code, int signal);
  void full(int64_t generation);
  void restart_all(), restore(int64_t generation), step(int64_t generation);
  void change(int64_t generation);
  int64_t held_step(int64_t generation);
  void commit(const Item& item);
  void publish(int64_t generation, int64_t step), fault(), strike(size_t leader);
  void freeze(Machine&machine), break_hardware(size_t machine);
  void set_sides(uint64_t percent);
  bool majority_would_live(const std::vector<bool>& lost) const;
  size_t leader() const;          // of the newest committed generation; machines_.size(): none
  std::string converged() const;  // empty: yes

  const bool loud_;
  uint64_t state_;
  SimResult result_;
  int64_t now_ns_ = 0, stepped_ns_ = 0, faults_end_ns_, settle_ns_, end_ns_;
  uint64_t order_ = 0;
  double loss_ = 0, base_loss_ = 0;
  int64_t calm_until_ns_ = 0;                  // of a burst of loss
  bool strikes_ = false;                       // at the next commit
  bool asked_to_stop_ = false, over_ = false;  // over: ended by who led, and not begun anew
  bool folder_refuses_ = false;                // the rendezvous: until it is back; else it hangs
  int64_t folder_back_ns_ = 0;
  bool quorum_kept_ = true;  // no fault took a majority of a generation away at once
  std::vector<Machine> machines_;
  std::unordered_map<NodeId, size_t> where_;
  std::priority_queue<Item, std::vector<Item>, std::greater<>> queue_;
  NodeId next_id_ = 1;
  struct {  // control/rendezvous.h
    int64_t number = -1;
    NodeId id = 0;
    Succession last;
  } rendezvous_;
  std::map<int64_t, Training> trainings_;
  struct {                               // what all see of the checkpoints
    int64_t step = 0, generation = -1;   // the newest, and who committed it
    int64_t most = 0;                    // the largest step that was ever committed
    int64_t fence = -1;                  // the newest generation that has begun
    std::map<int64_t, int64_t> commits;  // by step: the generation
  } disk_;
  struct {                         // what the memory of nodes holds, of a planned change [P25]
    int64_t step = -1;             // -1: nothing
    std::vector<NodeId> of_ranks;  // rank r's part lies on these nodes: r, and r + 1
  } memory_;
  bool memory_lost_ = false;  // and with it the step of a planned change
  CoordinatorOptions options_;
};

}  // namespace lockstep::launcher::control
