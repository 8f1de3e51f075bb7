// Rules of docs/PROTOCOL.md that random faults do not find missing: each has a schedule that breaks
// the job without the rule, and does not with it. Before the job breaks a check of the rule fails,
// in the process that breaks the rule.
#include "job_rig.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>

#include "base/text.h"

namespace lockstep::launcher::control {
namespace {

constexpr NodeId kOutsider = 99;

// What the schedule gives without the rule where nothing asserts the rule.
template <typename Schedule>
auto unasserted(Rule rule, Schedule schedule) {
  rule_not_asserted = rule;
  auto result = schedule(rule);
  rule_not_asserted = Rule::kNone;
  return result;
}

void goes_over_to(Job& job, NodeId node, NodeId coordinator) {
  job.tell(node, LeaderLost{});
  job.tell(node, Delivered{NotLeader{{coordinator, text("a", coordinator)}}});
}

Order order_of(NodeId leader, int64_t sequence, int64_t generation, Duty duty) {
  Order order;
  order.leader = leader;
  order.sequence = sequence;
  order.generation = generation;
  order.duty = duty;
  order.count = order.world_size = 1;
  return order;
}

// Node 2 has promised generation 5 to a stranger. The order to run generation 3 comes late.
int64_t runs_after_a_late_order(Rule without) {
  Job job(OnNodeLoss::kShrink, /*min=*/1, /*max=*/3, /*spares=*/0, without);
  job.cut(2, true);
  job.tell(2, Delivered{order_of(kOutsider, 1, 5, Duty::kPrepare)});
  job.tell(2, Delivered{order_of(1, INT64_MAX, 3, Duty::kRun)});
  return job.runs(2);
}

TEST(ProtocolRules, P1) {
  EXPECT_DEATH((void)runs_after_a_late_order(Rule::kP1), "\\[P1\\]");
  EXPECT_EQ(unasserted(Rule::kP1, runs_after_a_late_order), 3);
  EXPECT_EQ(runs_after_a_late_order(Rule::kNone), -1);
}

// The order to run the next generation comes while a worker of this one still ends.
bool starts_beside_a_worker(Rule without) {
  NodeActions actions;
  Member member({.id = 2, .name = "n2", .address = "a2", .timing = {}, .without = without},
                /*leads=*/false, 0);
  member.on(order_of(1, 1, 0, Duty::kPrepare), 0, actions);
  member.on(order_of(1, 2, 0, Duty::kRun), 0, actions);
  member.on(Spawned{{11}}, 0, actions);
  member.on(order_of(1, 3, 1, Duty::kPrepare), 0, actions);
  member.on(order_of(1, 4, 1, Duty::kRun), 0, actions);
  return member.committed() == 1;
}

TEST(ProtocolRules, P2) {
  EXPECT_DEATH((void)starts_beside_a_worker(Rule::kP2), "\\[P2\\]");
  EXPECT_TRUE(unasserted(Rule::kP2, starts_beside_a_worker));
  EXPECT_FALSE(starts_beside_a_worker(Rule::kNone));
}

// Nodes 1 to 4 make generation 1. Node 4 hears nothing more of it: it goes to nodes 5 and 6. These
// three are half of generation 0, and node 5 succeeds that, while nodes 1 to 3 follow generation 1.
Job of_two_successors(Rule without) {
  Job job(OnNodeLoss::kShrink, /*min=*/1, /*max=*/6, /*spares=*/0, without);
  EXPECT_EQ(job.running(), 6);
  for (const NodeId id : {5, 6}) job.move(id, 1);
  job.move_at_commit({{4, 1}});
  job.pass(8);
  return job;
}

TEST(ProtocolRules, P8) {
  EXPECT_DEATH((void)of_two_successors(Rule::kP8), "\\[P8\\]");
  const Job broken = unasserted(Rule::kP8, of_two_successors),
            whole = of_two_successors(Rule::kNone);
  EXPECT_GE(broken.runs(2), 2);
  EXPECT_GE(broken.runs(6), 2);  // two generations train
  EXPECT_GE(whole.runs(2), 2);
  EXPECT_EQ(whole.runs(6), -1);
}

// Node 3 succeeds node 1, which sleeps, and nobody hears of its generation 1. The others go back to
// node 1, which leads generations 2 and 3. Node 2 misses both, and goes to node 3, which may only
// follow generation 1 when node 1 has not said at the rendezvous that it went on.
Job of_two_branches(Rule without) {
  Job job(OnNodeLoss::kShrink, /*min=*/2, /*max=*/5, /*spares=*/0, without);
  job.move_at_commit({{2, 1}, {4, 1}, {5, 1}});
  job.sleep(1, true);
  job.pass_ms(3200);
  EXPECT_EQ(job.runs(3), 1);
  job.sleep(3, true);
  job.sleep(1, false);
  job.pass_ms(40);
  for (const NodeId id : {2, 4, 5}) job.move(id, 0);
  for (const NodeId id : {2, 4, 5}) goes_over_to(job, id, 1);
  job.move_at_commit({{2, 1}});
  job.tell(1, PeerGone{3});
  job.pass(1);
  EXPECT_EQ(job.runs(4), 2);
  job.tell(1, PeerGone{2});
  job.pass(1);
  EXPECT_EQ(job.runs(4), 3);
  job.sleep(3, false);
  job.pass_ms(40);
  for (const NodeId id : {2, 4, 5}) job.tell(3, PeerGone{id});
  job.pass_ms(300);
  job.move(2, 0);
  goes_over_to(job, 2, 3);
  job.pass(1);
  return job;
}

TEST(ProtocolRules, P9) {
  EXPECT_DEATH((void)of_two_branches(Rule::kP9), "\\[P9\\]");
  const Job broken = unasserted(Rule::kP9, of_two_branches), whole = of_two_branches(Rule::kNone);
  EXPECT_GE(broken.runs(2), 3);
  EXPECT_GE(broken.runs(4), 3);  // two generations train
  EXPECT_EQ(broken.coordinators(), 2);
  EXPECT_EQ(whole.runs(2), -1);
  EXPECT_EQ(whole.runs(4), 3);
}

// Node 3, which is no standby, has promised a stranger more than the job has reached.
int64_t running_with_a_newer_promise(Rule without) {
  Job job(OnNodeLoss::kShrink, /*min=*/1, /*max=*/4, /*spares=*/0, without);
  job.tell(3, Delivered{order_of(kOutsider, 1, 50, Duty::kPrepare)});
  job.pass(4);  // until it is back
  job.worker_dies(1);
  job.pass(3);
  return job.running();
}

TEST(ProtocolRules, P10) {
  EXPECT_DEATH((void)running_with_a_newer_promise(Rule::kP10), "\\[P10\\]");
  EXPECT_EQ(unasserted(Rule::kP10, running_with_a_newer_promise), 3);
  EXPECT_EQ(running_with_a_newer_promise(Rule::kNone), 4);
}

// Without [P11] node 1 has said that it went on, and node 3 may follow generation 1 all the same.
TEST(ProtocolRules, P11) {
  EXPECT_DEATH((void)of_two_branches(Rule::kP11), "\\[P11\\]");
  const Job broken = unasserted(Rule::kP11, of_two_branches);
  EXPECT_GE(broken.runs(2), 3);
  EXPECT_GE(broken.runs(4), 3);
}

// Node 1 is lost. Node 6 has the promises of 4 to 7 for generation 1, and its question to the
// rendezvous hangs. Nodes 4 and 5 go to node 3, whose generation 2 is allowed. Then the older
// question arrives.
Job of_a_late_question(Rule without) {
  Job job(OnNodeLoss::kShrink, /*min=*/1, /*max=*/7, /*spares=*/0, without);
  for (const NodeId id : {2, 3}) job.move(id, 1);
  job.lose(1);
  job.folder_hangs(6, true);
  job.pass_ms(3160);
  for (const NodeId id : {4, 5}) job.move(id, 1);
  for (const NodeId id : {4, 5}) goes_over_to(job, id, 3);
  job.pass_ms(200);
  EXPECT_EQ(job.runs(2), 2);
  job.folder_hangs(6, false);
  job.pass(4);
  return job;
}

TEST(ProtocolRules, P12) {
  EXPECT_DEATH((void)of_a_late_question(Rule::kP12), "\\[P12\\]");
  const Job broken = unasserted(Rule::kP12, of_a_late_question),
            whole = of_a_late_question(Rule::kNone);
  EXPECT_EQ(broken.runs(2), 2);
  EXPECT_GE(broken.runs(7), 1);
  EXPECT_EQ(whole.runs(2), 2);
  EXPECT_EQ(whole.runs(7), -1);
}

// Nodes 1 and 3 are half of the job, nodes 2 and 4 the other half. Node 4 has promised a number
// that makes the generation of its half the newer one.
Job of_two_halves(Rule without) {
  Job job(OnNodeLoss::kShrink, /*min=*/1, /*max=*/4, /*spares=*/0, without);
  for (const NodeId id : {2, 4}) job.move(id, 1);
  job.tell(4, Delivered{order_of(kOutsider, 1, 50, Duty::kPrepare)});
  job.pass(6);
  return job;
}

TEST(ProtocolRules, P13) {
  EXPECT_DEATH((void)of_two_halves(Rule::kP13), "\\[P13\\]");
  const Job broken = unasserted(Rule::kP13, of_two_halves), whole = of_two_halves(Rule::kNone);
  EXPECT_GE(broken.runs(1), 1);
  EXPECT_GE(broken.runs(2), 51);
  EXPECT_GE(whole.runs(1), 1);
  EXPECT_EQ(whole.runs(2), -1);
}

// Half of the nodes sleep while the other half is asked to stop, and ends the job.
Job of_sleepers(Rule without) {
  Job job(OnNodeLoss::kShrink, /*min=*/1, /*max=*/4, /*spares=*/0, without);
  for (const NodeId id : {2, 4}) job.sleep(id, true);
  job.tell(1, StopRequested{SIGTERM});
  job.pass(12);
  EXPECT_EQ(job.up(), 2u);
  for (const NodeId id : {2, 4}) job.sleep(id, false);
  job.pass(6);
  return job;
}

TEST(ProtocolRules, P14) {
  EXPECT_DEATH((void)of_sleepers(Rule::kP14), "\\[P14\\]");
  EXPECT_GE(unasserted(Rule::kP14, of_sleepers).runs(2), 1);
  EXPECT_EQ(of_sleepers(Rule::kNone).runs(2), -1);
}

// A spare's connection has broken in the moment in which it is needed.
int64_t running_after_a_spare_broke_off(Rule without) {
  Job job(OnNodeLoss::kShrink, /*min=*/1, /*max=*/3, /*spares=*/1, without);
  const NodeId spare = job.parked();
  job.lose(spare == 2 ? 3 : 2);
  job.pass_ms(80);
  job.cut(spare, true);
  job.break_connection(spare);
  job.pass_ms(80);  // and now the lost one counts as lost
  return job.running();
}

TEST(ProtocolRules, P15) {
  EXPECT_DEATH((void)running_after_a_spare_broke_off(Rule::kP15), "\\[P15\\]");
  EXPECT_EQ(unasserted(Rule::kP15, running_after_a_spare_broke_off),
            0);  // it is asked, and not heard
  EXPECT_EQ(running_after_a_spare_broke_off(Rule::kNone), 2);
}

// Node 3 is a standby, cut off while all were asked to stop.
int64_t seconds_until_a_lone_standby_stops(Rule without) {
  Job job(OnNodeLoss::kShrink, /*min=*/1, /*max=*/5, /*spares=*/0, without);
  for (const NodeId id : {1, 2, 3, 4, 5}) job.tell(id, StopRequested{SIGUSR1});
  job.cut(3, true);
  job.pass(40);
  EXPECT_EQ(job.up(), 0u);
  return job.lasted_s();
}

TEST(ProtocolRules, P16) {
  EXPECT_DEATH((void)seconds_until_a_lone_standby_stops(Rule::kP16), "\\[P16\\]");
  EXPECT_LT(unasserted(Rule::kP16, seconds_until_a_lone_standby_stops), 12);
  EXPECT_GE(seconds_until_a_lone_standby_stops(Rule::kNone), 12);
}

// Node 1 has lost three of five nodes, who may go on, and is asked to stop.
bool a_lesser_part_ends_the_job(Rule without) {
  Job job(OnNodeLoss::kShrink, /*min=*/4, /*max=*/5, /*spares=*/0, without);
  for (const NodeId id : {2, 3, 4}) job.lose(id);
  job.pass(1);
  job.tell(1, StopRequested{SIGTERM});
  job.pass(3);
  return job.left().back().over;
}

TEST(ProtocolRules, P17) {
  EXPECT_DEATH((void)a_lesser_part_ends_the_job(Rule::kP17), "\\[P17\\]");
  EXPECT_TRUE(unasserted(Rule::kP17, a_lesser_part_ends_the_job));
  EXPECT_FALSE(a_lesser_part_ends_the_job(Rule::kNone));
}

// A node reports what another coordinator had it run.
int64_t coordinators_after_a_newer_report(Rule without) {
  Job job(OnNodeLoss::kShrink, /*min=*/1, /*max=*/3, /*spares=*/0, without);
  Report report;
  report.id = 2;
  report.sequence = INT64_MAX;
  report.follows = 1;
  report.promised = report.committed = 7;
  report.promised_to = kOutsider;
  job.tell(1, Delivered{report});
  return job.coordinators();
}

TEST(ProtocolRules, P18) {
  EXPECT_DEATH((void)coordinators_after_a_newer_report(Rule::kP18), "\\[P18\\]");
  EXPECT_EQ(unasserted(Rule::kP18, coordinators_after_a_newer_report), 1);
  EXPECT_EQ(coordinators_after_a_newer_report(Rule::kNone), 0);
}

int64_t coordinators_after_superseded(Rule without) {
  Job job(OnNodeLoss::kShrink, /*min=*/1, /*max=*/3, /*spares=*/0, without);
  job.tell(1, Superseded{});
  return job.coordinators();
}

TEST(ProtocolRules, P19) {
  EXPECT_DEATH((void)coordinators_after_superseded(Rule::kP19), "\\[P19\\]");
  EXPECT_EQ(unasserted(Rule::kP19, coordinators_after_superseded), 1);
  EXPECT_EQ(coordinators_after_superseded(Rule::kNone), 0);
}

// A coordinator that was stopped has node 1 in its list, and orders it to end its workers.
int64_t coordinator_runs_after_a_foreign_order(Rule without) {
  Job job(OnNodeLoss::kShrink, /*min=*/1, /*max=*/3, /*spares=*/0, without);
  job.cut(1, true);
  job.tell(1, Delivered{order_of(kOutsider, 1, 5, Duty::kPrepare)});
  return job.runs(1);
}

TEST(ProtocolRules, P20) {
  EXPECT_DEATH((void)coordinator_runs_after_a_foreign_order(Rule::kP20), "\\[P20\\]");
  EXPECT_EQ(unasserted(Rule::kP20, coordinator_runs_after_a_foreign_order), -1);
  EXPECT_EQ(coordinator_runs_after_a_foreign_order(Rule::kNone), 0);
}

// Node 2 has promised more than the job has reached, and then the job ends.
size_t left_after_the_end(Rule without) {
  Job job(OnNodeLoss::kShrink, /*min=*/1, /*max=*/2, /*spares=*/1, without);
  const NodeId spare = job.parked();
  job.tell(spare, Delivered{order_of(kOutsider, 1, 50, Duty::kPrepare)});
  job.tell(spare, Delivered{NotLeader{{1, "a1"}}});
  job.tell(1, StopRequested{SIGTERM});
  job.pass(9);
  return job.up();
}

TEST(ProtocolRules, P21) {
  EXPECT_DEATH((void)left_after_the_end(Rule::kP21), "\\[P21\\]");
  EXPECT_EQ(unasserted(Rule::kP21, left_after_the_end), 1u);
  EXPECT_EQ(left_after_the_end(Rule::kNone), 0u);
}

int64_t running_after_a_silence(Rule without) {
  Job job(OnNodeLoss::kShrink, /*min=*/1, /*max=*/3, /*spares=*/0, without);
  job.cut(2, true);
  job.pass_ms(2500);
  return job.runs(1);
}

TEST(ProtocolRules, P22) {
  EXPECT_DEATH((void)running_after_a_silence(Rule::kP22), "\\[P22\\]");
  EXPECT_EQ(unasserted(Rule::kP22, running_after_a_silence),
            0);  // it waits for a node that is lost
  EXPECT_GE(running_after_a_silence(Rule::kNone), 1);
}

// The order to park comes once more, after the order to run: it was doubled on the way.
bool a_doubled_order_ends_workers(Rule without) {
  NodeActions actions;
  Member member({.id = 2, .name = "n2", .address = "a2", .timing = {}, .without = without},
                /*leads=*/false, 0);
  const Order park = order_of(1, 1, 0, Duty::kPark);
  member.on(park, 0, actions);
  member.on(order_of(1, 2, 0, Duty::kPrepare), 0, actions);
  member.on(order_of(1, 3, 0, Duty::kRun), 0, actions);
  actions.clear();
  member.on(park, 0, actions);
  return std::any_of(actions.begin(), actions.end(), [](const NodeAction& action) {
    return std::holds_alternative<KillWorkers>(action);
  });
}

TEST(ProtocolRules, P23) {
  EXPECT_DEATH((void)a_doubled_order_ends_workers(Rule::kP23), "\\[P23\\]");
  EXPECT_TRUE(unasserted(Rule::kP23, a_doubled_order_ends_workers));
  EXPECT_FALSE(a_doubled_order_ends_workers(Rule::kNone));
}

}  // namespace
}  // namespace lockstep::launcher::control
