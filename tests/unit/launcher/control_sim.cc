#include "control_sim.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>

#include "base/hash.h"
#include "base/text.h"

namespace lockstep::launcher::control {
namespace {

constexpr size_t kQueuedBelow = 128;         // nodes; with more, most messages arrive at once
constexpr int64_t kSettleNs = 14'000 * kMs;  // for everybody to converge once faults stop
constexpr int64_t kFenceNs = 1'000 * kMs;    // after fence_ns, to see it and to do it
constexpr int64_t kMeetNs = 6'000 * kMs;     // a coordinator that does not answer is dead
constexpr int64_t kLookNs = 5'000 * kMs;     // who leads looks whether the rendezvous names it

bool steady(const Message& message) {
  if (const auto* report = std::get_if<Report>(&message)) return report->exits.empty();
  return true;
}

}  // namespace

Sim::Sim(uint64_t seed, Rule without, bool loud, SimNodes nodes)
    : loud_(loud), state_(mix64(seed + 1)) {
  const double exponent =
      static_cast<double>(draw(1 << 20)) / (1 << 20) * std::log2(static_cast<double>(nodes.most));
  size_t count = 1;
  while (count * 2 <= static_cast<size_t>(1) << static_cast<int64_t>(exponent)) count *= 2;
  count += draw(count);
  const auto most = static_cast<size_t>(nodes.most);
  count = nodes.exactly ? most : std::min(count, most);
  result_.nodes = static_cast<int64_t>(count);
  machines_.resize(count);
  options_.timing = timing_of(result_.nodes);
  const int64_t longer = options_.timing.evict_ns / Timing{}.evict_ns;
  settle_ns_ = kSettleNs * longer;
  faults_end_ns_ = (large() ? 6'000 * longer : 15'000) * kMs;
  end_ns_ = faults_end_ns_ + (large() ? 11'000 * kMs * longer : settle_ns_);
  base_loss_ = loss_ = chance(0.5) ? 0 : 0.02;
  options_.supervisor.nproc_per_node = {1};
  options_.supervisor.max_restarts = options_.supervisor.max_no_progress = 1'000'000;
  options_.supervisor.hang_s = 3600;
  const uint64_t mode = draw(20);
  options_.on_node_loss = mode == 0   ? OnNodeLoss::kSpare
                          : mode == 1 ? OnNodeLoss::kFail
                          : mode < 5  ? OnNodeLoss::kWait
                                      : OnNodeLoss::kShrink;
  options_.min_nodes = chance(0.7) ? 1 : std::max<int64_t>(1, result_.nodes / 4);
  options_.max_nodes = result_.nodes;
  options_.spares = chance(0.3) ? static_cast<int64_t>(draw(2)) : 0;
  options_.max_nodes = std::max(options_.min_nodes, options_.max_nodes - options_.spares);
  options_.last_call_ns = 2'000 * kMs;
  options_.timing.scan_ns = 40 * kMs;
  options_.without = without;
  options_.bars_broken_nodes = seed % 4 == 0;
  options_.supervisor.without = without;
  if (seed % 5 == 3) options_.growth = {.slots = 1 << 20, .after_ns = 800 * kMs};
}

uint64_t Sim::draw(uint64_t limit) {
  state_ += 0x9e3779b97f4a7c15ULL;
  return limit == 0 ? 0 : mix64(state_) % limit;
}

int64_t Sim::between_ms(int64_t low, int64_t high) {
  return (low * 1000 + static_cast<int64_t>(draw(static_cast<uint64_t>((high - low) * 1000 + 1)))) *
         (kMs / 1000);
}

void Sim::broken(const std::string& rule) {
  if (result_.broken.empty()) result_.broken = text("at ", now_ns_ / kMs, " ms: ", rule);
  say("BROKEN: " + rule);
}

void Sim::say(const std::string& words) {
  if (loud_) std::printf("%8.3f  %s\n", static_cast<double>(now_ns_) * 1e-9, words.c_str());
}

void Sim::push(int64_t after_ns, Kind kind, size_t machine, int64_t number,
               std::shared_ptr<Message> message) {
  queue_.push({now_ns_ + after_ns,
               order_++,
               kind,
               machine,
               machines_[machine].id,
               number,
               std::move(message),
               {},
               0});
}

SimResult Sim::run() {
  for (size_t i = 0; i < machines_.size(); ++i) start(i);
  const int64_t faults = 1 + static_cast<int64_t>(draw(large() ? 4 : 12));
  for (int64_t i = 0; i < faults; ++i)
    push(between_ms(large() ? 1'000 : 0, faults_end_ns_ / kMs), Kind::kFault, 0);
  while (!queue_.empty() && result_.broken.empty()) {
    Item item = queue_.top();
    queue_.pop();
    now_ns_ = item.at_ns;
    if (now_ns_ >= end_ns_) {  // a large job, which has many events, goes on while it must
      if (end_ns_ >= faults_end_ns_ + settle_ns_ || converged().empty()) break;
      end_ns_ += 1'000 * kMs;
    }
    if (now_ns_ >= calm_until_ns_) loss_ = now_ns_ < faults_end_ns_ ? base_loss_ : 0;
    ++result_.events;
    handle(item);
  }
  if (const std::string why = converged(); result_.broken.empty() && !why.empty())
    broken("not converged: " + why);
  return result_;
}

void Sim::handle(Item& item) {
  Machine& m = machines_[item.machine];
  if (item.kind == Kind::kFault)
    return item.number == 0 ? fault() : item.number == kRestartAll ? restart_all() : set_sides(0);
  if (item.kind == Kind::kStep) return step(item.number);
  if (item.kind == Kind::kMeet && item.incarnation == m.id) return meet(item.machine);
  if (item.incarnation != m.id || !m.node) return;
  if (now_ns_ < m.frozen_until_ns) {  // it sees everything when it wakes
    item.at_ns = m.frozen_until_ns;
    queue_.push(std::move(item));
    return;
  }
  switch (item.kind) {
    case Kind::kTick: {
      const bool leads = m.node->coordinator() != nullptr;
      push(leads ? 40 * kMs : options_.timing.report_ns, Kind::kTick, item.machine);
      Tick tick;
      if (m.alive) tick.samples.push_back({m.progress, false});
      feed(item.machine, tick);
      check_fence(m);
      if (!leads || now_ns_ - m.looked_ns < kLookNs) break;
      m.looked_ns = now_ns_;
      beat(item.machine);
      break;
    }
    case Kind::kDeliver: feed(item.machine, Delivered{std::move(*item.message)}); break;
    case Kind::kSpawned:
      if (m.generation == item.number) feed(item.machine, Spawned{{1}});
      break;
    case Kind::kWorkerEnd:
      if (m.generation == item.number && m.alive) end_worker(item.machine, 0, SIGKILL);
      break;
    case Kind::kWorkerSaved:
      if (m.generation == item.number && m.alive) end_worker(item.machine, kExitResume, 0);
      break;
    case Kind::kWorkerChanged:
      if (m.generation == item.number && m.alive) end_worker(item.machine, kExitChanged, 0);
      break;
    case Kind::kPropose: propose(item); break;
    case Kind::kLost:
      if (m.node->member().follows().id == static_cast<NodeId>(item.number))
        feed(item.machine, LeaderLost{});
      break;
    case Kind::kGone: feed(item.machine, PeerGone{static_cast<NodeId>(item.number)}); break;
    case Kind::kCommit: commit(item); break;
    case Kind::kStep:
    case Kind::kFault:
    case Kind::kMeet: break;
  }
}

void Sim::feed(size_t machine, const NodeEvent& event) {
  if (!machines_[machine].node) return;
  NodeActions actions = machines_[machine].node->on(event, now_ns_);
  for (NodeAction& action : actions) carry_out(machine, action);
}

void Sim::carry_out(size_t machine, NodeAction& action) {
  Machine& m = machines_[machine];
  if (auto* out = std::get_if<Send>(&action)) {
    send(machine, *out);
  } else if (const auto* follow = std::get_if<Follow>(&action)) {
    const NodeId to = follow->leader.id != 0 ? follow->leader.id : rendezvous_.id;
    const auto found = where_.find(to);
    const bool there = found != where_.end() && machines_[found->second].node != nullptr &&
                       !cut(machine, found->second);
    if (!there && chance(0.8))
      push(between_ms(1, 5), Kind::kLost, machine, static_cast<int64_t>(follow->leader.id));
  } else if (const auto* spawned = std::get_if<SpawnWorkers>(&action)) {
    spawn(machine, spawned->order);
  } else if (std::holds_alternative<KillWorkers>(action)) {
    if (m.alive && !std::exchange(m.dying, true))
      push(between_ms(1, chance(0.05) ? 3000 : 50), Kind::kWorkerEnd, machine, m.generation);
  } else if (std::holds_alternative<TermWorkers>(action)) {
    push(between_ms(1, 500), Kind::kWorkerSaved, machine, m.generation);
  } else if (std::holds_alternative<ChangeWorkers>(action)) {
    m.asked_to_change = true;
    if (chance(0.1)) push(between_ms(1, 300), Kind::kWorkerEnd, machine, m.generation);  // a fault
    if (options_.without == Rule::kP24)
      push(between_ms(1, 50), Kind::kWorkerChanged, machine, m.generation);
  } else if (const auto* proposal = std::get_if<Propose>(&action)) {
    m.decided_ns = std::max(m.decided_ns, now_ns_) + between_ms(1, chance(0.03) ? 5000 : 60);
    queue_.push(
        {m.decided_ns, order_++, Kind::kPropose, machine, m.id, 0, nullptr, proposal->next, 0});
  } else if (const auto* commit = std::get_if<Committed>(&action)) {
    Training& training = trainings_[commit->generation];
    if (training.leader != 0)
      broken(text("generation ", commit->generation, " was committed by ", training.leader, " and ",
                  m.id));
    if (over_) broken(text("generation ", commit->generation, " of a job that is over"));
    training.leader = m.id;
    ++result_.generations;
    for (const auto& node : m.node->coordinator()->nodes())
      if (node->index >= 0) ++training.world;
    say(text("node ", m.id, " commits generation ", commit->generation, " of ", training.world));
    if (strikes_) strike(machine);
  } else if (const auto* leads = std::get_if<Leads>(&action)) {
    say(text("node ", m.id, " takes over after generation ", leads->after));
    push(40 * kMs, Kind::kTick, machine);
    ++result_.takeovers;
  } else if (const auto* down = std::get_if<SteppedDown>(&action)) {
    say(text("node ", m.id, " steps down: ", down->reason));
  } else if (const auto* record = std::get_if<LoggedEvent>(&action)) {
    if (record->event == "node_barred") ++result_.barred;
    if (record->event == "changed") ++result_.changes;
    if (record->event == "changed" && record->redone_steps > 0 && !memory_lost_)
      broken(text("a planned change computes ", record->redone_steps, " steps again"));
    if (loud_ && record->event != "worker_exit")
      say(text("  ", m.id, " ", record->event, " g", record->generation, " ", record->reason));
  } else if (const auto* leave = std::get_if<Leave>(&action)) {
    say(text("node ", m.id, " leaves with ", leave->exit_status, ": ", leave->reason));
    m.left = !leave->alone;
    if (m.node->coordinator() != nullptr) withdraw(m, leave->over);
    stop_machine(machine, true);
    if (leave->alone && !over_) start(machine, true);  // cli/launch/launch_command.cc
  }
}

void Sim::send(size_t from, Send& send) {
  NodeId to = send.to;
  if (to == 0) to = rendezvous_.id;
  const auto found = where_.find(to);
  if (found == where_.end() || cut(from, found->second) || (loss_ > 0 && chance(loss_))) return;
  const size_t target = found->second;
  Machine& m = machines_[target];
  if (!m.node || m.id != to) return;
  if (machines_.size() > kQueuedBelow && steady(send.message) && !chance(0.1) &&
      now_ns_ >= m.frozen_until_ns) {
    feed(target, Delivered{std::move(send.message)});
    return;
  }
  auto message = std::make_shared<Message>();
  const int copies = chance(0.03) ? 2 : 1;
  // Through bytes and back, as on a wire.
  if (copies == 2) {
    auto decoded = decode(encode(send.message));
    if (!decoded) return broken(decoded.error().message);
    *message = std::move(decoded).value();
    push(between_ms(1, 400), Kind::kDeliver, target, 0, std::make_shared<Message>(*message));
  } else {
    *message = std::move(send.message);
  }
  push(between_ms(0, chance(0.05) ? 300 : 8), Kind::kDeliver, target, 0, std::move(message));
}

void Sim::start(size_t machine, bool over) {
  Machine& m = machines_[machine];
  const int side = m.side;
  m = Machine{};
  m.side = side;
  m.id = next_id_++;
  m.starts_over = over;
  meet(machine);
}

// Who finds nobody for long enough, and no other one at the rendezvous meanwhile, coordinates.
void Sim::meet(size_t machine) {
  Machine& m = machines_[machine];
  const auto found = where_.find(rendezvous_.id);
  const bool up = found != where_.end() && now_ns_ >= machines_[found->second].frozen_until_ns;
  if (up && !cut(machine, found->second)) return begin(machine, false);
  // Unreachable, but it goes on: what it writes on the disk that all see says so.
  if (m.meets_number != rendezvous_.number || m.meets_since_ns < 0 || up)
    m.meets_since_ns = now_ns_, m.meets_number = rendezvous_.number;
  if (rendezvous_.id != 0 && now_ns_ - m.meets_since_ns < kMeetNs)
    return push(100 * kMs, Kind::kMeet, machine);
  rendezvous_ = {rendezvous_.number + 1, m.id, rendezvous_.last};
  say(text("node ", m.id, " is a first coordinator"));
  begin(machine, true);
}

void Sim::begin(size_t machine, bool leads) {
  Machine& m = machines_[machine];
  m.meets_since_ns = -1;
  where_[m.id] = machine;
  CoordinatorOptions options = options_;
  options.id = m.id;
  if (m.starts_over) options.timing = starting_over(options.timing, options.last_call_ns);
  if (!trainings_.empty()) options.supervisor.first_generation = trainings_.rbegin()->first + 1;
  MemberOptions member;
  member.id = m.id;
  member.name = text("n", machine);
  member.address = text("a", machine);
  member.timing = options.timing;
  member.without = options_.without;
  m.node = std::make_unique<JobNode>(member, options, leads, now_ns_);
  m.looked_ns = now_ns_;
  push(between_ms(0, now_ns_ > 0 ? 200 : 1500), Kind::kTick, machine);
}

// Without its coordinator a node kills its workers.
void Sim::check_fence(Machine& m) {
  const auto leader = m.alive ? where_.find(trainings_[m.generation].leader) : where_.end();
  const bool reached = leader != where_.end() && machines_[leader->second].side == m.side;
  if (!m.alive || m.dying || reached) {
    m.apart_since_ns = -1;
    return;
  }
  if (m.apart_since_ns < 0) m.apart_since_ns = now_ns_;
  if (now_ns_ - std::max(m.apart_since_ns, m.frozen_until_ns) > options_.timing.fence_ns + kFenceNs)
    broken(text("node ", m.id, " does not fence its worker of generation ", m.generation));
}

void Sim::propose(const Item& item) {
  Decided answer{item.next.base, item.next.generation, false, ""};
  if (now_ns_ < folder_back_ns_ && !folder_refuses_) {
    Item later = item;
    later.at_ns = folder_back_ns_;
    return queue_.push(std::move(later));
  }
  if (now_ns_ < folder_back_ns_) {
    answer.error = "the folder is full";
  } else {
    answer.mine = decide(machines_[item.machine], item.next);
  }
  feed(item.machine, answer);
}

// Rendezvous::follow.
bool Sim::decide(Machine& m, const Succession& next) {
  const auto newest = after(rendezvous_.last, next, options_.without);
  if (next.base < 0 ? rendezvous_.id != m.id : !newest) return false;
  rendezvous_ = {rendezvous_.number + 1, m.id, next.base < 0 ? next : *newest};
  over_ = over_ && next.base >= 0;
  m.leads = next;
  return true;
}

// Rendezvous::beat.
void Sim::beat(size_t machine) {
  Machine& m = machines_[machine];
  if (!m.node || m.node->coordinator() == nullptr || rendezvous_.id == m.id) return;
  if (now_ns_ < folder_back_ns_) return;
  const Succession& last = rendezvous_.last;
  if (m.leads && keeps(last, *m.leads, options_.without)) {
    rendezvous_ = {rendezvous_.number + 1, m.id, last};
  } else {
    feed(machine, Superseded{});
  }
}

// Rendezvous::withdraw.
void Sim::withdraw(const Machine& m, bool over) {
  if (rendezvous_.id != m.id) return;
  rendezvous_.id = 0;
  if (!over) return;
  over_ = rendezvous_.last.over = true;
  ++result_.ends;
}

// `noticed`: its connections break at once; otherwise it is just silent.
void Sim::stop_machine(size_t machine, bool noticed) {
  Machine& m = machines_[machine];
  const NodeId id = m.id;
  if (m.alive) --trainings_[m.generation].alive;
  m.alive = false;
  // Whoever calls may be inside this node's actions: it goes when it is started anew, or never.
  std::unique_ptr<JobNode> node = std::move(m.node);
  where_.erase(id);
  if (!noticed) return;
  const bool led = node->coordinator() != nullptr;
  for (size_t i = 0; i < machines_.size(); ++i) {
    Machine& other = machines_[i];
    if (!other.node || cut(machine, i)) continue;
    if (other.node->coordinator() != nullptr)
      push(between_ms(0, 3), Kind::kGone, i, static_cast<int64_t>(id));
    if (led && other.node->member().follows().id == id)
      push(between_ms(0, 3), Kind::kLost, i, static_cast<int64_t>(id));
  }
}

}  // namespace lockstep::launcher::control
