// The faults of a simulated job, and what has to be true once they have stopped.
#include <algorithm>
#include <csignal>
#include <utility>

#include "base/text.h"
#include "control_sim.h"

namespace lockstep::launcher::control {

void Sim::restart_all() {
  for (size_t i = 0; i < machines_.size(); ++i)
    if (!machines_[i].node && !machines_[i].left && machines_[i].meets_since_ns < 0) {
      start(i);
      say(text("FAULT a new node ", machines_[i].id));
    }
}

size_t Sim::leader() const {
  for (auto it = trainings_.rbegin(); it != trainings_.rend(); ++it)
    if (const auto found = where_.find(it->second.leader); found != where_.end())
      return found->second;
  return machines_.size();
}

// Whether more than half of the newest generation's nodes would be left, and one that may lead.
bool Sim::majority_would_live(const std::vector<bool>& lost) const {
  if (trainings_.empty()) return !lost[0];
  const int64_t newest = trainings_.rbegin()->first;
  const int64_t world = trainings_.rbegin()->second.world;
  int64_t left = 0;
  for (size_t i = 0; i < machines_.size(); ++i)
    if (machines_[i].node && machines_[i].node->member().committed() == newest && !lost[i] &&
        !machines_[i].fails)  // it may be a member no more
      ++left;
  const Training& training = trainings_.rbegin()->second;
  const auto lives = [&](NodeId id) {
    const auto found = where_.find(id);
    return found != where_.end() && !lost[found->second] &&
           now_ns_ >= machines_[found->second].frozen_until_ns;
  };
  return 2 * left > world && (lives(training.leader) ||
                              std::any_of(training.standbys.begin(), training.standbys.end(),
                                          [&](const Peer& standby) { return lives(standby.id); }));
}

void Sim::fault() {
  ++result_.faults;
  const size_t victim =
      chance(0.4) && leader() < machines_.size() ? leader() : draw(machines_.size());
  Machine& m = machines_[victim];
  std::vector<bool> lost(machines_.size());
  lost[victim] = true;
  if (options_.bars_broken_nodes && chance(0.2)) return break_hardware(victim);
  switch (draw(10)) {
    case 0:
    case 1: {
      if (!m.node) break;
      const bool noticed = chance(0.7);
      say(text("FAULT node ", m.id, " crashes", noticed ? "" : ", silently"));
      quorum_kept_ = quorum_kept_ && majority_would_live(lost) && machines_.size() > 2;
      stop_machine(victim, noticed);
      // Something starts it again, in the middle of the takeover.
      if (chance(0.3)) push(between_ms(0, 4000), Kind::kFault, 0, kRestartAll);
      break;
    }
    case 2: restart_all(); break;
    case 3:
      if (!m.alive) break;
      say(text("FAULT the worker of node ", m.id, " dies"));
      if (m.generation >= 0 && !m.dying) end_worker(victim, 0, SIGKILL);
      break;
    case 4: set_sides(1 + draw(100)); break;
    case 5:
      loss_ = 0.05 + static_cast<double>(draw(25)) / 100;
      calm_until_ns_ = now_ns_ + between_ms(200, 2000);
      say(text("FAULT loss of ", loss_));
      if (loss_ > 0.1) quorum_kept_ = false;
      break;
    case 6:
    case 7: strikes_ = true; break;
    case 8:
      folder_refuses_ = chance(0.5);
      folder_back_ns_ = now_ns_ + between_ms(100, 6000);
      say(text("FAULT the folder ", folder_refuses_ ? "is full" : "hangs", " for ",
               (folder_back_ns_ - now_ns_) / kMs));
      quorum_kept_ = false;  // who asks meanwhile steps down
      break;
    default:
      if (!m.node) break;
      if (now_ns_ >= m.frozen_until_ns && chance(0.2)) {
        say(text("FAULT node ", m.id, " is asked to stop"));
        asked_to_stop_ = true;
        feed(victim, StopRequested{SIGTERM});
        break;
      }
      freeze(m);
      quorum_kept_ = quorum_kept_ && majority_would_live(lost) && machines_.size() > 2;
      break;
  }
}

void Sim::freeze(Machine& m) {
  constexpr int64_t kWakeNs = 3'000 * kMs;  // leaves enough time to converge
  m.frozen_until_ns = std::min(now_ns_ + between_ms(100, 5000), faults_end_ns_ + kWakeNs);
  say(text("FAULT node ", m.id, " is stopped for ", (m.frozen_until_ns - now_ns_) / kMs));
}

// Its agent says so until it is started anew.
void Sim::break_hardware(size_t victim) {
  Machine& m = machines_[victim];
  if (!m.node || now_ns_ < m.frozen_until_ns || std::exchange(m.fails, true)) return;
  say(text("FAULT the hardware of node ", m.id, " fails"));
  feed(victim, HealthSeen{"it fails", {"it fails"}});
}

// Between the promises to a generation and the orders to run it.
void Sim::strike(size_t leader) {
  strikes_ = false;
  if (chance(0.5)) return set_sides(1 + draw(100));
  const size_t victim = draw(machines_.size());
  Machine& m = machines_[victim];
  if (victim == leader || !m.node) return;
  freeze(m);
  quorum_kept_ = false;
}

// So many percent of the nodes cannot reach the others; 0: all can.
void Sim::set_sides(uint64_t percent) {
  say(text("FAULT ", percent, " % of the network fall apart"));
  std::vector<bool> lost(machines_.size());
  for (size_t i = 0; i < machines_.size(); ++i) {
    machines_[i].side = draw(100) < percent ? 1 : 0;
    lost[i] = machines_[i].side == 1;
  }
  if (percent == 0) return;
  std::vector<bool> others = lost;
  others.flip();
  quorum_kept_ = quorum_kept_ && (majority_would_live(lost) || majority_would_live(others));
  push(std::min(between_ms(300, 6000), std::max<int64_t>(faults_end_ns_ - now_ns_, 1)),
       Kind::kFault, 0, 1);
}

std::string Sim::converged() const {
  size_t up = 0, following = 0, leaders = 0;
  NodeId id = 0;
  for (const Machine& m : machines_)
    if (m.node && m.node->coordinator() != nullptr) ++leaders, id = m.id;
  for (const Machine& m : machines_) {
    if (!m.node) continue;
    ++up;
    if (m.node->member().heard() && m.node->member().follows().id == id) ++following;
  }
  if (up == 0) return "";
  const bool ends =
      options_.on_node_loss == OnNodeLoss::kSpare || options_.on_node_loss == OnNodeLoss::kFail;
  const bool ended =
      std::any_of(machines_.begin(), machines_.end(), [](const Machine& m) { return m.left; });
  if ((ends || asked_to_stop_) && ended) return "";
  const int64_t lately_ns = large() ? 4 * options_.timing.evict_ns : 2 * options_.timing.evict_ns;
  if (!quorum_kept_ && now_ns_ - stepped_ns_ > lately_ns) return "";
  if (leaders != 1) return text(leaders, " nodes lead");
  if (following != up) return text(following, " of ", up, " nodes follow node ", id);
  const auto able = static_cast<int64_t>(std::count_if(
      machines_.begin(), machines_.end(), [](const Machine& m) { return m.node && !m.fails; }));
  const bool waits = options_.on_node_loss == OnNodeLoss::kWait && !trainings_.empty() &&
                     able < trainings_.rbegin()->second.world;
  if (!waits && now_ns_ - stepped_ns_ > lately_ns)
    return text("no step for ", (now_ns_ - stepped_ns_) / kMs, " ms");
  return "";
}

}  // namespace lockstep::launcher::control
