#include "job_rig.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>

#include "base/text.h"

namespace lockstep::launcher::control {
namespace {

WorkerExit killed() {
  WorkerExit exit;
  exit.signal = SIGKILL;
  return exit;
}

}  // namespace

Job::Job(OnNodeLoss on_loss, int64_t min, int64_t max, int64_t spares, Rule without) {
  options_.without = without;
  options_.on_node_loss = on_loss;
  options_.min_nodes = min;
  options_.max_nodes = max;
  options_.spares = spares;
  options_.bars_wrong_nodes = options_.bars_broken_nodes = options_.replaces_slow_nodes = true;
  options_.supervisor.nproc_per_node = {1};
  options_.supervisor.max_restarts = options_.supervisor.max_no_progress = 100;
  for (int64_t i = 0; i < max + spares; ++i) start();
  pass(3);
}

NodeId Job::start(const std::string& name) {
  const NodeId id = next_id_++;
  CoordinatorOptions options = options_;
  options.id = id;
  const MemberOptions member{
      id, name, text("a", id), run_of_new_, options_.timing, options_.without};
  nodes_[id].machine = std::make_unique<JobNode>(member, options, id == 1, now_ns_);
  return id;
}

void Job::lose(NodeId id) {
  nodes_.erase(id);
  for (auto& [other, node] : nodes_) {
    on(other, PeerGone{id});
    if (node.machine->member().follows().id == id) on(other, LeaderLost{});
  }
  deliver();
}

void Job::worker_dies(NodeId id) {
  end_worker(id, killed());
  deliver();
}

void Job::worker_computes_wrongly(NodeId id) {
  WorkerExit exit;
  exit.exit_code = kExitWrongBits;
  end_worker(id, exit);
  deliver();
}

void Job::tell(NodeId id, const NodeEvent& event) {
  on(id, event);
  deliver();
}

void Job::folder_hangs(bool hangs) {
  std::vector<NodeId> ids;
  for (const auto& [id, node] : nodes_) ids.push_back(id);
  for (const NodeId id : ids) folder_hangs(id, hangs);
}

void Job::folder_hangs(NodeId of, bool hangs) {
  if (hangs) {
    folder_hangs_.insert(of);
  } else {
    folder_hangs_.erase(of);
  }
  for (const auto& [id, next] : std::exchange(unanswered_, {})) decide(id, next);
  deliver();
}

void Job::break_connection(NodeId id) {
  on(leader(), PeerGone{id});
  on(id, LeaderLost{});
  deliver();
}

void Job::pass_ms(int64_t ms) {
  for (const int64_t end_ns = now_ns_ + ms * kMs; now_ns_ < end_ns;) {
    now_ns_ += kTickNs;
    std::vector<NodeId> ids;
    for (const auto& [id, node] : nodes_) ids.push_back(id);
    for (const NodeId id : ids) on(id, tick_of(id));
    deliver();
  }
}

// Its worker has done one more step, where workers say anything.
Tick Job::tick_of(NodeId id) const {
  if (slow_.empty() || nodes_.at(id).machine->member().alive() == 0) return {};
  const auto slow = slow_.find(id);
  Progress progress;
  progress.phase = Phase::kStep;
  progress.step = now_ns_ / kTickNs;
  progress.slot_us = static_cast<int64_t>(1000 * (slow == slow_.end() ? 1 : slow->second));
  return {{{progress, false}}};
}

int64_t Job::running() const {
  int64_t count = 0, generation = -1;
  for (const auto& [id, node] : nodes_) {
    if (node.machine->member().alive() == 0) continue;
    const int64_t own = node.machine->member().committed();
    if (count++ > 0 && own != generation) return -1;
    generation = own;
  }
  return count;
}

int64_t Job::runs(NodeId id) const {
  const Member& member = nodes_.at(id).machine->member();
  return member.alive() > 0 ? member.committed() : -1;
}

int64_t Job::said(const std::string& event) const {
  return std::count_if(events_.begin(), events_.end(),
                       [&](const LoggedEvent& said) { return said.event == event; });
}

int64_t Job::coordinators() const {
  return std::count_if(nodes_.begin(), nodes_.end(), [](const auto& node) {
    return node.second.machine->coordinator() != nullptr;
  });
}

NodeId Job::leader() const {
  for (const auto& [id, node] : nodes_)
    if (node.machine->coordinator() != nullptr) return id;
  return 0;
}

NodeId Job::parked() const {
  for (const auto& [id, node] : nodes_)
    if (node.machine->member().alive() == 0) return id;
  return 0;
}

void Job::expect_end(size_t nodes, const std::string& reason) const {
  EXPECT_EQ(up(), 0u);
  EXPECT_EQ(left_.size(), nodes);
  for (const Leave& leave : left_) EXPECT_EQ(leave.exit_status, kExitResume) << leave.reason;
  EXPECT_THAT(left_.empty() ? "" : left_.back().reason, testing::HasSubstr(reason));
}

void Job::on(NodeId id, const NodeEvent& event) {
  if (!nodes_.contains(id) || nodes_.at(id).asleep) return;
  for (NodeAction& action : nodes_.at(id).machine->on(event, now_ns_)) carry_out(id, action);
}

void Job::carry_out(NodeId id, NodeAction& action) {
  if (auto* out = std::get_if<Send>(&action)) {
    const NodeId to = out->to != 0 ? out->to : rendezvous_;
    if (reaches(id, to)) mail_.push_back({id, to, Delivered{std::move(out->message)}});
  } else if (const auto* spawn = std::get_if<SpawnWorkers>(&action)) {
    nodes_.at(id).rank = spawn->order.first_rank;
    mail_.push_back({id, id, Spawned{{1}}});
  } else if (std::holds_alternative<KillWorkers>(action)) {
    WorkerExit ended = killed();
    ended.agent_did = AgentDid::kKilled;
    end_worker(id, ended);
  } else if (const auto* proposal = std::get_if<Propose>(&action)) {
    decide(id, proposal->next);
  } else if (std::holds_alternative<Committed>(action)) {
    ++committed_;
    for (const auto& [moved, side] : std::exchange(move_at_commit_, {})) move(moved, side);
  } else if (const auto* record = std::get_if<LoggedEvent>(&action)) {
    events_.push_back(*record);
  } else if (const auto* leave = std::get_if<Leave>(&action)) {
    left_.push_back(*leave);
    last_left_ns_ = now_ns_;
    gone_.push_back(id);
    last_.over = last_.over || leave->over;
  }
}

bool Job::reaches(NodeId from, NodeId to) const {
  if (from == to) return true;
  const auto sender = nodes_.find(from), receiver = nodes_.find(to);
  return sender != nodes_.end() && receiver != nodes_.end() &&
         sender->second.side == receiver->second.side;
}

void Job::decide(NodeId id, const Succession& next) {
  if (folder_hangs_.contains(id)) return unanswered_.push_back({id, next});
  const auto newest = next.base < 0 ? next : after(last_, next, options_.without);
  const bool mine = newest.has_value();
  if (mine) rendezvous_ = id, last_ = *newest;
  mail_.push_back({id, id, Decided{next.base, next.generation, mine, ""}});
}

void Job::end_worker(NodeId id, WorkerExit exit) {
  exit.rank = static_cast<int>(nodes_.at(id).rank);
  mail_.push_back({id, id, WorkersExited{{exit}, now_ns_}});
}

void Job::deliver() {
  while (!mail_.empty()) {
    const Mail mail = std::move(mail_.front());
    mail_.pop_front();
    if (reaches(mail.from, mail.to)) on(mail.to, mail.event);
  }
  for (const NodeId id : std::exchange(gone_, {})) nodes_.erase(id);
}

}  // namespace lockstep::launcher::control
