// What a node knows and reports of its own workers, those of the newest generation that it was told
// to run.
// Pure. Thread: one. Time: monotonic nanoseconds.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "launcher/control/events.h"

namespace lockstep::launcher::control {

class LocalWorkers {
 public:
  int64_t generation() const { return generation_; }  // -1: it was told to run none
  int64_t alive() const { return alive_; }            // workers that are not reaped
  bool spawning() const { return spawning_; }
  bool told_to_end() const { return told_to_end_; }
  const std::vector<Sample>& samples() const { return samples_; }

  // Requires: none is alive [P2]; the generation is a newer one; there is a worker at least.
  void start(int64_t generation, int64_t count);
  // Whether they have not been told yet; they are from now on.
  bool tell_to_stop() { return !std::exchange(told_to_stop_, true); }
  bool tell_to_change() { return !std::exchange(told_to_change_, true); }
  bool tell_to_end() { return !std::exchange(told_to_end_, true); }

  // One of the two, once. Requires: they were started.
  void on(const Spawned& event);
  void on(const SpawnFailed& event);
  void on(const WorkersExited& event);
  void look(const std::vector<Sample>& samples) { samples_ = samples; }
  // The coordinator knows of so many exits.
  void confirm_exits(int32_t count);
  void fill(Report& report, int64_t now_ns) const;

 private:
  int64_t generation_ = -1, alive_ = 0;
  bool spawning_ = false, told_to_stop_ = false, told_to_change_ = false, told_to_end_ = false;
  std::vector<int32_t> pids_;
  std::string spawn_error_;
  std::vector<WorkerExit> exits_;
  size_t exits_confirmed_ = 0;
  int64_t exits_alive_ns_ = 0;     // when the first unconfirmed one was last seen alive
  bool computes_wrongly_ = false;  // Report::computes_wrongly
  std::vector<Sample> samples_;
};

}  // namespace lockstep::launcher::control
