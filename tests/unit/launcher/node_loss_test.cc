// What --on-node-loss does when a node is lost, one that only runs workers or the one that
// coordinates. Whole agents without sockets: every JobNode is real, and all that lies between them
// is a list of messages, a clock, and what the rendezvous says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <deque>
#include <map>

#include "base/text.h"
#include "launcher/control/job_node.h"

namespace lockstep::launcher::control {
namespace {

using testing::HasSubstr;

constexpr int64_t kTickNs = 40 * kMs, kSecondNs = 1000 * kMs;

class Job {
 public:
  explicit Job(OnNodeLoss on_loss, int64_t min = 1, int64_t max = 3, int64_t spares = 0) {
    options_.on_node_loss = on_loss;
    options_.min_nodes = min;
    options_.max_nodes = max;
    options_.spares = spares;
    options_.supervisor.nproc_per_node = {1};
    options_.supervisor.max_restarts = options_.supervisor.max_no_progress = 100;
    for (int64_t i = 0; i < max + spares; ++i) start();
    pass(3);
  }

  NodeId start() {
    const NodeId id = next_id_++;
    CoordinatorOptions options = options_;
    options.id = id;
    const MemberOptions member{id, text("n", id), text("a", id), run_of_new_, options_.timing};
    nodes_[id].machine = std::make_unique<JobNode>(member, options, id == 1, now_ns_);
    return id;
  }
  // Its machine is gone; the others' connections to it break.
  void lose(NodeId id) {
    nodes_.erase(id);
    for (auto& [other, node] : nodes_) {
      on(other, PeerGone{id});
      if (node.machine->member().follows().id == id) on(other, LeaderLost{});
    }
    deliver();
  }
  void worker_dies(NodeId id) {
    end_worker(id);
    deliver();
  }
  // Nothing goes from it or to it, and nobody is told.
  void cut(NodeId id, bool off) { nodes_.at(id).cut = off; }

  void tell(NodeId id, const Event& event) {
    on(id, event);
    deliver();
  }
  void new_ones_train(uint64_t run) { run_of_new_ = run; }
  void folder_hangs(bool hangs) {
    folder_hangs_ = hangs;
    for (const auto& [id, next] : std::exchange(unanswered_, {})) decide(id, next);
    deliver();
  }

  void break_connection(NodeId id) {
    on(leader(), PeerGone{id});
    on(id, LeaderLost{});
    deliver();
  }

  void pass(int64_t seconds) { pass_ms(seconds * 1000); }
  void pass_ms(int64_t ms) {
    for (const int64_t end_ns = now_ns_ + ms * kMs; now_ns_ < end_ns;) {
      now_ns_ += kTickNs;
      std::vector<NodeId> ids;
      for (const auto& [id, node] : nodes_) ids.push_back(id);
      for (const NodeId id : ids) on(id, Tick{});
      deliver();
    }
  }

  // How many run a worker, all of one generation; -1: they do not agree on it.
  int64_t running() const {
    int64_t count = 0, generation = -1;
    for (const auto& [id, node] : nodes_) {
      if (node.machine->member().alive() == 0) continue;
      const int64_t own = node.machine->member().committed();
      if (count++ > 0 && own != generation) return -1;
      generation = own;
    }
    return count;
  }
  NodeId leader() const {
    for (const auto& [id, node] : nodes_)
      if (node.machine->coordinator() != nullptr) return id;
    return 0;
  }
  NodeId parked() const {
    for (const auto& [id, node] : nodes_)
      if (node.machine->member().alive() == 0) return id;
    return 0;
  }
  size_t up() const { return nodes_.size(); }
  int reminders() const { return reminders_; }
  const std::vector<Leave>& left() const { return left_; }
  int64_t lasted_s() const { return last_left_ns_ / kSecondNs; }
  // Who is left has left with 75, the coordinator for this reason.
  void expect_end(size_t nodes, const std::string& reason) const {
    EXPECT_EQ(up(), 0u);
    EXPECT_EQ(left_.size(), nodes);
    for (const Leave& leave : left_) EXPECT_EQ(leave.exit_status, kExitResume) << leave.reason;
    EXPECT_THAT(left_.empty() ? "" : left_.back().reason, HasSubstr(reason));
  }

 private:
  struct Node {
    std::unique_ptr<JobNode> machine;
    int64_t rank = -1;
    bool cut = false;
  };

  void on(NodeId id, const Event& event) {
    if (nodes_.contains(id))
      for (Action& action : nodes_.at(id).machine->on(event, now_ns_)) carry_out(id, action);
  }
  void carry_out(NodeId id, Action& action) {
    if (auto* out = std::get_if<Send>(&action)) {
      const NodeId to = out->to != 0 ? out->to : rendezvous_;
      if (!nodes_.at(id).cut) mail_.push_back({to, Delivered{std::move(out->message)}});
    } else if (const auto* spawn = std::get_if<SpawnWorkers>(&action)) {
      nodes_.at(id).rank = spawn->order.first_rank;
      mail_.push_back({id, Spawned{{1}}});
    } else if (std::holds_alternative<KillWorkers>(action)) {
      end_worker(id);
    } else if (const auto* proposal = std::get_if<Propose>(&action)) {
      decide(id, proposal->next);
    } else if (const auto* record = std::get_if<Record>(&action)) {
      if (record->event == "waiting_for_nodes") ++reminders_;
    } else if (const auto* leave = std::get_if<Leave>(&action)) {
      left_.push_back(*leave);
      last_left_ns_ = now_ns_;
      gone_.push_back(id);
    }
  }
  void decide(NodeId id, const Succession& next) {
    if (folder_hangs_) return unanswered_.push_back({id, next});
    const auto newest = next.base < 0 ? next : after(last_, next);
    const bool mine = newest.has_value();
    if (mine) rendezvous_ = id, last_ = *newest;
    mail_.push_back({id, Decided{next.base, next.generation, mine, ""}});
  }
  void end_worker(NodeId id) {
    WorkerExit exit;
    exit.signal = SIGKILL;
    exit.rank = static_cast<int>(nodes_.at(id).rank);
    mail_.push_back({id, WorkersExited{{exit}, now_ns_}});
  }
  void deliver() {
    while (!mail_.empty()) {
      auto [to, event] = std::move(mail_.front());
      mail_.pop_front();
      const auto found = nodes_.find(to);
      const bool lost = std::holds_alternative<Delivered>(event);
      if (found != nodes_.end() && !(lost && found->second.cut)) on(to, event);
    }
    for (const NodeId id : std::exchange(gone_, {})) nodes_.erase(id);
  }

  CoordinatorOptions options_;
  int64_t now_ns_ = kSecondNs, last_left_ns_ = 0;
  NodeId next_id_ = 1, rendezvous_ = 1;
  std::map<NodeId, Node> nodes_;
  Succession last_;
  bool folder_hangs_ = false;
  uint64_t run_of_new_ = 0;
  int reminders_ = 0;
  std::vector<std::pair<NodeId, Succession>> unanswered_;
  std::deque<std::pair<NodeId, Event>> mail_;
  std::vector<NodeId> gone_;
  std::vector<Leave> left_;
};

TEST(OnNodeLoss, ShrinkGoesOnWithFewerDownToMin) {
  Job job(OnNodeLoss::kShrink, /*min=*/2, /*max=*/4);
  EXPECT_EQ(job.running(), 4);
  job.lose(4);
  job.pass(2);
  EXPECT_EQ(job.running(), 3);
  job.lose(2);
  job.pass(2);
  EXPECT_EQ(job.running(), 2);
  job.lose(3);
  job.pass(29);  // for one more to come
  EXPECT_EQ(job.running(), 0);
  EXPECT_EQ(job.up(), 1u);
  job.pass(5);
  job.expect_end(1, "1 nodes are left and 2 are needed");
}

// Who has lost more than half of its nodes at once cannot know what those do.
TEST(OnNodeLoss, OnlyHalfOfTheNodesOrMoreEndTheJobForAll) {
  for (const NodeId lost : {2, 3}) {
    Job job(OnNodeLoss::kShrink, /*min=*/4, /*max=*/5);
    for (NodeId id = 2; id < 2 + lost; ++id) job.lose(id);
    job.pass(1);
    job.tell(1, StopRequested{SIGTERM});
    job.pass(3);
    job.expect_end(5 - lost, "stop");
    EXPECT_EQ(job.left().back().over, lost == 2);
  }
}

TEST(OnNodeLoss, WhoTookOverAndWaitsEndsTheJobForAll) {
  Job job(OnNodeLoss::kWait, /*min=*/1, /*max=*/3);
  job.lose(1);
  job.pass(5);
  EXPECT_EQ(job.running(), 0);
  job.tell(job.leader(), StopRequested{SIGTERM});
  job.pass(3);
  job.expect_end(2, "stop");
  EXPECT_TRUE(job.left().back().over);
}

TEST(OnNodeLoss, ShrinkTakesASpareFirst) {
  Job job(OnNodeLoss::kShrink, 1, 3, /*spares=*/1);
  EXPECT_EQ(job.running(), 3);
  job.lose(job.parked() == 2 ? 3 : 2);
  job.pass(2);
  EXPECT_EQ(job.running(), 3);
  EXPECT_EQ(job.parked(), 0u);
}

TEST(OnNodeLoss, SpareGoesOnByTheParkedNodeAndEndsWithoutOne) {
  Job job(OnNodeLoss::kSpare, 1, 3, /*spares=*/1);
  EXPECT_EQ(job.running(), 3);
  job.lose(job.parked() == 2 ? 3 : 2);
  job.pass(2);
  EXPECT_EQ(job.running(), 3);
  job.lose(4);
  job.pass(5);
  job.expect_end(2, "2 nodes are left and 3 are needed; no spare is there");
}

TEST(Folder, AWorkersEndAndALostNodeNeedNotWaitForIt) {
  Job job(OnNodeLoss::kShrink, 1, 5);
  job.folder_hangs(true);
  job.worker_dies(2);
  job.pass(1);
  EXPECT_EQ(job.running(), 5);
  job.lose(4);
  job.pass(1);
  EXPECT_EQ(job.running(), 4);
}

// Who asks in vain lets another one try, and can be stopped meanwhile.
TEST(Folder, ACoordinatorsSuccessorWaitsForIt) {
  for (const bool back : {true, false}) {
    Job job(OnNodeLoss::kShrink, 1, 5);
    job.folder_hangs(true);
    job.lose(1);
    job.pass(10);
    EXPECT_EQ(job.running(), 0);
    EXPECT_EQ(job.up(), 4u);
    if (back) job.folder_hangs(false);
    if (!back)
      for (const NodeId id : {2, 3, 4, 5}) job.tell(id, StopRequested{SIGTERM});
    job.pass(10);
    EXPECT_EQ(job.running(), back ? 4 : 0);
    if (!back) job.expect_end(4, "asked to stop, and nobody leads");
  }
}

TEST(Folder, WhoIsNamedThereNoMoreStepsDown) {
  Job job(OnNodeLoss::kShrink, 1, 5);
  job.tell(1, Superseded{});
  EXPECT_EQ(job.leader(), 0u);
  job.pass(8);
  EXPECT_EQ(job.running(), 5);
}

TEST(Stop, OfASpareIsItsOwnAffair) {
  Job job(OnNodeLoss::kShrink, 1, 3, /*spares=*/1);
  job.tell(job.parked(), StopRequested{SIGINT});
  job.pass(3);
  EXPECT_EQ(job.up(), 3u);
  EXPECT_EQ(job.running(), 3);
}

// Node 3 is a standby, cut off while all save because they were asked to stop.
TEST(Stop, AStandbyThatIsAloneDoesNotEndTheJob) {
  Job job(OnNodeLoss::kShrink, 1, 5);
  for (const NodeId id : {1, 2, 3, 4, 5}) job.tell(id, StopRequested{SIGUSR1});
  job.cut(3, true);
  job.pass(40);
  ASSERT_EQ(job.left().size(), 5u);
  EXPECT_EQ(job.left().back().reason, "asked to stop, and nobody leads");
  EXPECT_GT(job.lasted_s(), 10);
}

TEST(OnNodeLoss, ANodeWithAnotherConfigIsRefusedAndHarmsNobody) {
  Job job(OnNodeLoss::kShrink, 1, 3);
  job.lose(3);
  job.pass(1);
  job.new_ones_train(17);
  job.start();
  job.pass(1);
  EXPECT_EQ(job.up(), 2u);
  EXPECT_EQ(job.running(), 2);
  ASSERT_EQ(job.left().size(), 1u);
  EXPECT_EQ(job.left()[0].exit_status, kExitConfig);
  EXPECT_THAT(job.left()[0].reason, HasSubstr("its config is not that of"));
}

// The coordinator's neighbours are not its standbys.
TEST(OnNodeLoss, ARackWithTheCoordinatorLeavesAStandby) {
  Job job(OnNodeLoss::kShrink, 1, 9);
  for (const NodeId id : {1, 2, 3, 4}) job.lose(id);
  job.pass(10);
  EXPECT_EQ(job.running(), 5);
}

TEST(OnNodeLoss, SpareIsAwaitedWhoseConnectionHasJustBroken) {
  Job job(OnNodeLoss::kSpare, 1, 3, /*spares=*/1);
  const NodeId spare = job.parked();
  job.lose(spare == 2 ? 3 : 2);
  job.pass_ms(80);
  job.cut(spare, true);
  job.break_connection(spare);
  job.pass_ms(80);  // and now the lost one counts as lost
  EXPECT_EQ(job.running(), 0);
  EXPECT_EQ(job.up(), 3u);
  job.cut(spare, false);
  job.pass(2);
  EXPECT_EQ(job.running(), 3);
}

TEST(OnNodeLoss, SpareGoesOnWhenTheCoordinatorIsLost) {
  for (const bool cut : {false, true}) {
    Job job(OnNodeLoss::kSpare, 1, 3, /*spares=*/1);
    ASSERT_EQ(job.leader(), 1u);
    cut ? job.cut(1, true) : job.lose(1);
    job.pass(5);
    EXPECT_EQ(job.running(), 3) << cut;
  }
}

TEST(OnNodeLoss, SpareEndsWhenTheCoordinatorIsLostAndNoneIsParked) {
  Job job(OnNodeLoss::kSpare);
  job.lose(1);
  job.pass(8);
  job.expect_end(2, "2 nodes are left and 3 are needed; no spare is there");
}

// Without the coordinator, who comes finds the one that waits by the rendezvous.
TEST(OnNodeLoss, WaitGoesOnWhenAnotherNodeComes) {
  for (const NodeId lost : {3, 1}) {
    Job job(OnNodeLoss::kWait);
    job.lose(lost);
    job.pass(lost == 1 ? 60 : 300);
    EXPECT_EQ(job.running(), 0);
    EXPECT_EQ(job.up(), 2u);
    job.start();
    job.pass(3);
    EXPECT_EQ(job.running(), 3) << lost;
  }
}

TEST(OnNodeLoss, WaitGoesOnWhenTheNodeComesBack) {
  Job job(OnNodeLoss::kWait);
  job.cut(3, true);
  job.pass(10);
  EXPECT_EQ(job.running(), 0);
  job.cut(3, false);
  job.pass(3);
  EXPECT_EQ(job.running(), 3);
}

TEST(OnNodeLoss, WhoWaitsSaysSoNowAndThen) {
  Job job(OnNodeLoss::kWait);
  job.lose(3);
  job.pass(95);
  EXPECT_GE(job.reminders(), 3);
  EXPECT_LE(job.reminders(), 5);
}

TEST(OnNodeLoss, WaitEndsWhenNoNodeComes) {
  for (const NodeId lost : {3, 1}) {
    Job job(OnNodeLoss::kWait);
    job.lose(lost);
    job.pass(595);
    EXPECT_EQ(job.up(), 2u) << lost;
    job.pass(20);
    job.expect_end(2, "2 nodes are left and 3 are needed");
  }
}

// Cut off, the coordinator is not found again unless one of the two sides looks for the other.
TEST(OnNodeLoss, WaitGoesOnWhenTheCoordinatorComesBack) {
  for (const int64_t nodes : {2, 3, 4}) {
    Job job(OnNodeLoss::kWait, 1, nodes);
    ASSERT_EQ(job.running(), nodes);
    job.cut(1, true);
    job.pass(10);
    EXPECT_EQ(job.running(), 0);
    job.cut(1, false);
    job.pass(5);
    EXPECT_EQ(job.running(), nodes);
  }
}

TEST(OnNodeLoss, FailEndsTheJob) {
  for (const NodeId lost : {NodeId{1}, NodeId{3}}) {
    Job job(OnNodeLoss::kFail, 1, 3, /*spares=*/0);
    job.lose(lost);
    job.pass(8);
    job.expect_end(2, "a node was lost, and --on-node-loss is fail");
  }
}

// Neither is a worker a node, nor is one missed that ran nothing.
TEST(OnNodeLoss, FailGoesOnWithoutAWorkerOrASpare) {
  Job job(OnNodeLoss::kFail, 1, 3, /*spares=*/1);
  EXPECT_EQ(job.running(), 3);
  job.lose(job.parked());
  job.pass(2);
  EXPECT_EQ(job.running(), 3);
  job.worker_dies(job.leader());
  job.pass(2);
  EXPECT_EQ(job.running(), 3);
  EXPECT_EQ(job.up(), 3u);
}

}  // namespace
}  // namespace lockstep::launcher::control
