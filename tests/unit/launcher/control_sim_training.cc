// The training of a simulated job. All workers of a generation restore what is committed when the
// last of them has come, and write the fence; a step takes all of them; a save takes rank 0 and
// time, and is refused once a newer generation has fenced it off (checkpoint/save/save.h). That
// alone is the model's: who is spawned, and that no generation trains beside a newer one, is the
// launcher's.
#include <algorithm>
#include <csignal>

#include "base/text.h"
#include "control_sim.h"

namespace lockstep::launcher::control {

void Sim::spawn(size_t machine, const Order& order) {
  Machine& m = machines_[machine];
  if (m.alive) broken(text("node ", m.id, " spawns beside its workers of ", m.generation));
  if (order.generation <= m.generation)
    broken(text("node ", m.id, " spawns generation ", order.generation, " after ", m.generation));
  const auto found = trainings_.find(order.generation);
  if (found == trainings_.end() || found->second.leader != order.leader)
    return broken(text("node ", m.id, " runs generation ", order.generation, " of ", order.leader,
                       ", which did not commit it"));
  Training& training = found->second;
  check_order(m, training, order);
  training.standbys = order.standbys;
  m.generation = order.generation;
  m.rank = order.first_rank;
  m.alive = true;
  m.dying = m.asked_to_change = false;
  m.apart_since_ns = -1;  // of the generation before it
  m.progress = {};
  m.progress.committed_step = disk_.step;
  ++training.alive;
  push(between_ms(1, 20), Kind::kSpawned, machine, m.generation);
  full(m.generation);
}

// Unique ranks below a world size on which all agree are contiguous once all are there.
void Sim::check_order(const Machine& m, Training& training, const Order& order) {
  const auto who = [&] { return text("generation ", order.generation, ", node ", m.id, ": "); };
  if (order.world_size != training.world)
    broken(text(who(), "a world of ", order.world_size, " where ", training.world, " are placed"));
  if (order.count != 1 || order.first_rank < 0 || order.first_rank >= training.world)
    broken(text(who(), order.count, " ranks from ", order.first_rank, " of ", training.world));
  if (!training.ranks.insert(order.first_rank).second)
    broken(text(who(), "rank ", order.first_rank, " is another node's"));
  if (order.safe_step > disk_.most)
    broken(text(who(), "step ", order.safe_step, " is safe, and ", disk_.most, " is on disk"));
}

void Sim::end_worker(size_t machine, int exit_code, int signal) {
  Machine& m = machines_[machine];
  m.alive = false;
  Training& training = trainings_[m.generation];
  --training.alive;
  if (m.rank == 0) training.saving = false;
  WorkerExit exit;
  exit.rank = static_cast<int>(m.rank);
  exit.exit_code = exit_code;
  exit.signal = signal;
  if (m.dying) exit.agent_did = AgentDid::kKilled;
  exit.progress = m.progress;
  feed(machine, WorkersExited{{exit}, now_ns_});
}

// Every worker of a generation lives: it trains.
void Sim::full(int64_t generation) {
  Training& training = trainings_[generation];
  if (training.alive != training.world || training.stepping) return;
  training.stepping = true;
  restore(generation);
  push(between_ms(30, 120), Kind::kStep, 0, generation);
}

void Sim::restore(int64_t generation) {
  Training& training = trainings_[generation];
  if (training.step >= 0) broken(text("generation ", generation, " begins twice"));
  if (generation < disk_.fence)
    broken(text("generation ", generation, " begins after ", disk_.fence));
  training.step = std::max(disk_.step, held_step(generation));
  disk_.fence = std::max(disk_.fence, generation);
  if (training.step < disk_.most)
    broken(text("generation ", generation, " starts from step ", training.step, ", and ",
                disk_.most, " was committed"));
  for (Machine& m : machines_)
    if (m.alive && m.generation == generation)
      m.progress.step = training.step, m.progress.committed_step = disk_.step;
}

// What the memory of this generation's nodes holds, all of it; -1: nothing.
int64_t Sim::held_step(int64_t generation) {
  const auto& nodes = memory_.of_ranks;
  const auto there = [&](NodeId id) {
    const auto found = where_.find(id);
    return found != where_.end() && machines_[found->second].generation == generation;
  };
  memory_lost_ = false;
  for (size_t r = 0; r < nodes.size(); ++r)
    memory_lost_ = memory_lost_ || !(there(nodes[r]) || there(nodes[(r + 1) % nodes.size()]));
  return memory_lost_ ? -1 : memory_.step;
}

// [P24], [P25] All workers have completed the step, and know of the change.
void Sim::change(int64_t generation) {
  Training& training = trainings_[generation];
  training.changes = true;
  if (options_.without != Rule::kP25) {
    memory_.step = training.step;
    memory_.of_ranks.assign(static_cast<size_t>(training.world), 0);
  }
  for (size_t i = 0; i < machines_.size(); ++i) {
    Machine& m = machines_[i];
    if (!m.alive || m.generation != generation) continue;
    if (options_.without != Rule::kP25) memory_.of_ranks[static_cast<size_t>(m.rank)] = m.id;
    push(between_ms(1, 50), Kind::kWorkerChanged, i, generation);
  }
}

// A step of the whole generation, which every one of its workers takes part in.
void Sim::step(int64_t generation) {
  Training& training = trainings_[generation];
  training.stepping = false;
  if (training.alive != training.world || training.changes) return;
  int side = -1;
  for (const Machine& m : machines_) {
    if (!m.alive || m.generation != generation) continue;
    if (side >= 0 && m.side != side) {
      training.stepping = true;  // they wait for each other
      push(200 * kMs, Kind::kStep, 0, generation);
      return;
    }
    side = m.side;
  }
  if (generation < disk_.fence)
    broken(text("generation ", generation, " trains on after ", disk_.fence));
  ++training.step;
  ++result_.steps;
  stepped_ns_ = now_ns_;
  const bool saves = !training.saving;
  bool changes = false;
  for (size_t i = 0; i < machines_.size(); ++i) {
    Machine& m = machines_[i];
    if (!m.alive || m.generation != generation) continue;
    changes = changes || m.asked_to_change;
    m.progress.step = training.step;
    m.progress.phase = Phase::kStep;
    m.progress.committed_step = std::max(m.progress.committed_step, training.committed);
    if (!saves || m.rank != 0) continue;
    training.saving = true;
    // Some take longer than it takes the others to go on without rank 0.
    queue_.push({now_ns_ + between_ms(20, chance(0.4) ? 6000 : 400),
                 order_++,
                 Kind::kCommit,
                 i,
                 m.id,
                 generation,
                 nullptr,
                 {},
                 training.step});
  }
  if (changes && options_.without != Rule::kP24) return change(generation);
  training.stepping = true;
  push(large() ? 1000 * kMs : between_ms(60, 300), Kind::kStep, 0, generation);
}

// Rank 0 publishes what all have written. The other workers may be no more.
void Sim::commit(const Item& item) {
  Machine& m = machines_[item.machine];
  if (!m.alive || m.generation != item.number) return;
  Training& training = trainings_[item.number];
  training.saving = false;
  if (item.number < disk_.fence) {
    ++result_.refused;
    return;
  }
  publish(item.number, item.step);
  training.committed = m.progress.committed_step = item.step;
}

void Sim::publish(int64_t generation, int64_t step) {
  const auto [earlier, fresh] = disk_.commits.emplace(step, generation);
  if (!fresh)
    broken(
        text("step ", step, " is committed by generations ", earlier->second, " and ", generation));
  if (generation < disk_.generation)
    broken(text("generation ", generation, " commits step ", step, " after generation ",
                disk_.generation));
  disk_.step = step;
  disk_.generation = generation;
  disk_.most = std::max(disk_.most, step);
  ++result_.commits;
}

}  // namespace lockstep::launcher::control
