// What the simulation's random faults meet too seldom: a standby that may not lead, who hears that
// the job is over, and a node that is lost in the moment in which the nodes are counted.
#include "launcher/control/job_node.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/text.h"

namespace lockstep::launcher::control {
namespace {

constexpr NodeId kNode = 5, kTheLeader = 7, kStranger = 9;
constexpr int64_t kTickNs = 200 * kMs;

// A node that follows kTheLeader, whose worker has ended, and which is the only standby.
class Standby : public testing::Test {
 protected:
  void SetUp() override {
    Order order;
    order.leader = kTheLeader;
    order.generation = 0;
    order.duty = Duty::kPrepare;
    order.sequence = 1;
    member_.on(order, now_ns_, actions_);
    order.duty = Duty::kRun;
    order.sequence = 2;
    order.count = order.world_size = 1;
    order.standbys = {{kNode, "10.0.0.5:1"}};
    order.members = {kTheLeader, kNode};
    member_.on(order, now_ns_, actions_);
    member_.on(Spawned{{11}}, now_ns_, actions_);
    member_.on(WorkersExited{{WorkerExit{}}, now_ns_}, now_ns_, actions_);
    actions_.clear();
  }

  // Ticks until it leaves; each time that it would lead it is told `answer`.
  void look_for_a_coordinator(const SteppedDown& answer) {
    for (; now_ns_ < 60'000 * kMs && !left_; now_ns_ += kTickNs) {
      member_.on(Tick{}, now_ns_, actions_);
      if (member_.take_lead()) {
        ++attempts_;
        member_.on(answer, now_ns_);
      }
      for (const NodeAction& action : actions_)
        if (const auto* leave = std::get_if<Leave>(&action)) left_ = *leave;
      actions_.clear();
    }
  }

  int64_t now_ns_ = 0;
  NodeActions actions_;
  Member member_{{.id = kNode, .name = "n5", .address = "10.0.0.5:1", .timing = {}}, false, 0};
  int attempts_ = 0;
  std::optional<Leave> left_;
};

// The whole job goes by the coordinator's times, whoever coordinates it later.
TEST_F(Standby, GoesByTheTimesOfTheCoordinator) {
  Order order;
  order.leader = kTheLeader;
  order.generation = 0;
  order.duty = Duty::kRun;
  order.sequence = 3;
  order.standbys = {{kNode, "10.0.0.5:1"}};
  order.patience = patience_of(timing_of(16'384));
  member_.on(order, now_ns_, actions_);
  EXPECT_EQ(patience_of(member_.timing()), order.patience);
  EXPECT_EQ(member_.timing().fence_ns, timing_of(16'384).fence_ns);
  const auto leads_after = [&](int64_t ns) {
    for (const int64_t end_ns = now_ns_ + ns; now_ns_ < end_ns; now_ns_ += kTickNs)
      member_.on(Tick{}, now_ns_, actions_);
    return member_.take_lead().has_value();
  };
  EXPECT_FALSE(leads_after(5'000 * kMs));
  EXPECT_TRUE(leads_after(1'400 * kMs));
}

TEST(JobNode, ACoordinatorTellsItsTimesAndAStandbyKeepsThem) {
  const auto options_of = [](NodeId id, const Timing& timing) {
    CoordinatorOptions options;
    options.id = id;
    options.max_nodes = 2;
    options.timing = timing;
    return options;
  };
  const Timing theirs = timing_of(2, {0, 5'000 * kMs, 0, 30'000 * kMs});
  JobNode leader({.id = kTheLeader, .name = "n7", .address = "a", .timing = theirs},
                 options_of(kTheLeader, theirs), true, 0);
  JobNode node({.id = kNode, .name = "n5", .address = "b", .timing = {}}, options_of(kNode, {}),
               false, 0);
  const auto deliver = [](JobNode& to, const NodeActions& actions, int64_t now_ns) {
    NodeActions out;
    for (const NodeAction& action : actions)
      if (const auto* send = std::get_if<Send>(&action))
        for (NodeAction& next : to.on(Delivered{send->message}, now_ns)) out.push_back(next);
    return out;
  };
  deliver(node, deliver(leader, node.on(Tick{}, 0), kMs), 2 * kMs);
  EXPECT_EQ(patience_of(node.member().timing()), patience_of(theirs));
}

TEST_F(Standby, DoesNotTryAgainOnceAnotherNodeHasSucceeded) {
  look_for_a_coordinator({"", true});
  EXPECT_EQ(attempts_, 1);
  ASSERT_TRUE(left_);
  EXPECT_EQ(left_->exit_status, kExitResume);
}

TEST_F(Standby, ThatReachesTooFewNodesGivesUpInTheEnd) {
  look_for_a_coordinator({"too few", false});
  EXPECT_GT(attempts_, 5);
  ASSERT_TRUE(left_);
  EXPECT_EQ(left_->exit_status, kExitResume);
  EXPECT_EQ(left_->reason, "found no coordinator for 20 s");
  EXPECT_LE(now_ns_, 22'000 * kMs);
}

// It was away while the leader went on alone, and has come back as a spare.
TEST_F(Standby, DoesNotSucceedWhatTheOthersHaveGoneOnFrom) {
  Order order;
  order.leader = kTheLeader;
  order.sequence = 3;
  order.generation = 0;
  order.base = 1;
  order.duty = Duty::kPark;
  member_.on(order, now_ns_, actions_);
  look_for_a_coordinator({"", true});
  EXPECT_EQ(attempts_, 0);
  ASSERT_TRUE(left_);
  EXPECT_EQ(left_->exit_status, kExitResume);
}

// A node that has never heard a coordinator, and what each of its calls came to.
Leave leaves_after(const std::vector<std::string>& calls, int64_t& now_ns) {
  Member member({.id = kNode, .name = "n5", .address = "10.0.0.5:1", .timing = {}}, false, 0);
  NodeActions actions;
  for (size_t call = 0;; now_ns += kTickNs) {
    member.on(Tick{}, now_ns, actions);
    if (now_ns % (2'000 * kMs) == 0)
      member.on(LeaderLost{calls[std::min(call++, calls.size() - 1)]}, now_ns, actions);
    for (const NodeAction& action : actions)
      if (const auto* leave = std::get_if<Leave>(&action)) return *leave;
    actions.clear();
  }
}

TEST(Member, WithAnotherSecretThanTheJobsLeavesSoonAndSaysSo) {
  int64_t now_ns = 0;
  const Leave leave = leaves_after({"10.0.0.7:1: its secret is another"}, now_ns);
  EXPECT_EQ(leave.exit_status, kExitConfig);
  EXPECT_EQ(leave.reason.find("found no coordinator for 20 s: 10.0.0.7:1: its secret is another; "),
            0u);
  EXPECT_NE(leave.reason.find("LOCKSTEP_SECRET"), std::string::npos) << leave.reason;
  EXPECT_LE(now_ns, 21'000 * kMs);

  // It had waited for somebody before.
  std::vector<std::string> late(100, "");
  late.push_back("10.0.0.7:1: its secret is another");
  now_ns = 0;
  EXPECT_EQ(leaves_after(late, now_ns).exit_status, kExitConfig);
  EXPECT_GE(now_ns, 220'000 * kMs);
  EXPECT_LE(now_ns, 222'000 * kMs);
}

// Another job's agent was there for a while, and then nobody.
TEST(Member, WaitsForTheJobsFirstCoordinatorAfterAStranger) {
  std::vector<std::string> calls(100, "");
  calls[50] = calls[51] = calls[52] = "10.0.0.7:1: its secret is another";
  int64_t now_ns = 0;
  const Leave leave = leaves_after(calls, now_ns);
  EXPECT_EQ(leave.exit_status, kExitResume);
  EXPECT_EQ(leave.reason, "found no coordinator for 600 s");
}

// A node that tried to lead has promised newer generations to itself than the job has reached.
TEST(JobNode, TheEndIsHeardByOneThatPromisedMore) {
  CoordinatorOptions options;
  options.id = kNode;
  options.max_nodes = 2;
  options.last_call_ns = 0;
  options.supervisor.nproc_per_node = {1};
  JobNode node({.id = kNode, .name = "n5", .address = "10.0.0.5:1", .timing = {}}, options, true,
               0);
  std::optional<Order> order;
  std::optional<Succession> proposed;
  bool spawned = false;
  int64_t now_ns = 0;
  const auto on = [&](const NodeEvent& event) {
    for (const NodeAction& action : node.on(event, now_ns += kTickNs)) {
      if (const auto* proposal = std::get_if<Propose>(&action)) proposed = proposal->next;
      if (const auto* send = std::get_if<Send>(&action); send != nullptr && send->to == kStranger)
        order = std::get<Order>(send->message);
      spawned = spawned || std::holds_alternative<SpawnWorkers>(action);
    }
  };
  for (int i = 0; i < 5; ++i) on(Tick{});
  ASSERT_TRUE(proposed);
  EXPECT_EQ(proposed->base, -1);
  on(Decided{-1, proposed->generation - 1, true, ""});  // of one that it has given up since
  EXPECT_FALSE(spawned);
  on(Decided{-1, proposed->generation, true, ""});
  ASSERT_TRUE(spawned);
  on(Spawned{{11}});
  on(Tick{{Sample{}}});

  Report report;
  report.id = kStranger;
  report.name = "n9";
  report.sequence = 1;
  report.follows = kNode;
  report.promised = 50;
  report.promised_to = kStranger;
  on(Delivered{report});
  ASSERT_TRUE(order);
  EXPECT_EQ(order->duty, Duty::kWait);
  EXPECT_EQ(order->generation, 51);
  order.reset();

  on(StopRequested{SIGTERM});
  WorkerExit exit;
  exit.exit_code = kExitResume;
  on(WorkersExited{{exit}, now_ns});
  ASSERT_TRUE(order);
  EXPECT_EQ(order->duty, Duty::kFinish);
  EXPECT_EQ(order->exit_status, kExitResume);
  EXPECT_EQ(order->generation, 51);
}

// Two of five are too few, the third comes when the second has been silent for too long.
TEST(Coordinator, CountsOnlyTheNodesThatAreLeft) {
  CoordinatorOptions options;
  options.id = kNode;
  options.max_nodes = 5;
  options.supervisor.nproc_per_node = {1};
  const std::vector<NodeId> members{kNode, 6, kTheLeader, 8, kStranger};
  Coordinator coordinator(options, {.generation = 3, .members = members, .lost = kTheLeader}, 0);
  NodeActions actions;
  int64_t now_ns = 0, sequence = 0;
  const auto report = [&](NodeId id) {
    Report from;
    from.id = id;
    from.name = text("n", id);
    from.follows = kNode;
    from.promised = from.committed = 3;
    from.sequence = ++sequence;
    coordinator.on(from, now_ns, actions);
  };
  report(6);
  for (; now_ns < options.timing.evict_ns; now_ns += kTickNs / 2) {
    report(kNode);
    coordinator.on(now_ns, actions);
  }
  report(8);
  actions.clear();
  coordinator.on(now_ns, actions);
  EXPECT_EQ(coordinator.nodes().size(), 2);
  for (const NodeAction& action : actions) EXPECT_FALSE(std::holds_alternative<Send>(action));
  now_ns += kTickNs / 2;
  report(6);  // it comes back
  coordinator.on(now_ns + kTickNs / 2, actions);
  EXPECT_TRUE(std::any_of(actions.begin(), actions.end(), [](const NodeAction& action) {
    const auto* send = std::get_if<Send>(&action);
    return send != nullptr && std::get<Order>(send->message).duty == Duty::kPrepare;
  }));
}

// [P18] A node that starts over leads, and another one still looks for the coordinator of before.
TEST(Coordinator, OfANewStartDoesNotListenToWhoIsYetToStartOver) {
  CoordinatorOptions options;
  options.id = kNode;
  options.max_nodes = 2;
  for (const NodeId follows : {NodeId{0}, NodeId{kNode}}) {
    Coordinator coordinator(options, {}, 0);
    Report report;
    report.id = 6;
    report.follows = follows;
    report.sequence = 1;
    report.promised = report.committed = 3;
    NodeActions actions;
    coordinator.on(report, 0, actions);
    const bool down = std::any_of(actions.begin(), actions.end(), [](const NodeAction& action) {
      return std::holds_alternative<SteppedDown>(action);
    });
    EXPECT_EQ(down, follows == kNode);
    EXPECT_EQ(actions.empty(), follows == 0);
  }
}

}  // namespace
}  // namespace lockstep::launcher::control
