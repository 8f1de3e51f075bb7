#include "launcher/control/local_workers.h"

#include <algorithm>

#include "base/check.h"
#include "base/text.h"
#include "launcher/control/rule.h"

namespace lockstep::launcher::control {

void LocalWorkers::start(int64_t generation, int64_t count) {
  LOCKSTEP_CHECK_RULE(P2, alive_ == 0, alive_, " workers of generation ", generation_,
                      " live, and those of ", generation, " start");
  LOCKSTEP_CHECK(generation > generation_, "generation ", generation, " after ", generation_);
  LOCKSTEP_CHECK(count >= 1 && count <= kMostRanks, count, " workers");
  const bool computes_wrongly = computes_wrongly_;
  *this = {};
  computes_wrongly_ = computes_wrongly;
  generation_ = generation;
  alive_ = count;
  spawning_ = true;
}

void LocalWorkers::on(const Spawned& event) {
  LOCKSTEP_CHECK(spawning_, "nobody has started workers of generation ", generation_);
  LOCKSTEP_CHECK(std::ssize(event.pids) == alive_ + std::ssize(exits_), event.pids.size(),
                 " workers of ", alive_, " that live and ", exits_.size(), " that have ended");
  spawning_ = false;
  pids_ = event.pids;
}

void LocalWorkers::on(const SpawnFailed& event) {
  LOCKSTEP_CHECK(spawning_, "nobody has started workers of generation ", generation_);
  spawning_ = false;
  spawn_error_ = event.message;
  alive_ = 0;
}

void LocalWorkers::on(const WorkersExited& event) {
  alive_ -= static_cast<int64_t>(event.exits.size());
  LOCKSTEP_CHECK(alive_ >= 0, event.exits.size(), " ends, ", -alive_, " more than workers lived");
  if (exits_.size() == exits_confirmed_) exits_alive_ns_ = event.alive_ns;
  exits_.insert(exits_.end(), event.exits.begin(), event.exits.end());
  for (const WorkerExit& exit : event.exits)
    computes_wrongly_ = computes_wrongly_ || exit.found_wrong();
}

void LocalWorkers::confirm_exits(int32_t count) {
  exits_confirmed_ =
      std::clamp<size_t>(static_cast<size_t>(std::max(count, 0)), exits_confirmed_, exits_.size());
}

void LocalWorkers::fill(Report& report, int64_t now_ns) const {
  LOCKSTEP_CHECK(exits_confirmed_ <= exits_.size(), exits_confirmed_, " of ", exits_.size());
  report.committed = generation_;
  report.alive = static_cast<int32_t>(alive_);
  report.pids = pids_;
  report.spawn_error = spawn_error_;
  report.exits_from = static_cast<int32_t>(exits_confirmed_);
  report.exits.assign(exits_.begin() + static_cast<std::ptrdiff_t>(exits_confirmed_), exits_.end());
  report.computes_wrongly = computes_wrongly_;
  report.samples = samples_;
  report.alive_ns = now_ns - exits_alive_ns_;
}

}  // namespace lockstep::launcher::control
