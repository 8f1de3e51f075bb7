// Decides what becomes of a job's workers, on however many nodes they are. Its owner, a
// Coordinator, decides which nodes these are. Pure: events and a time go in, and actions come out.
// It owns no process, file or clock, so that a test can walk every path.
//
//   FORMING --Started--> RUNNING(g) --failure, hang, stop--> STOPPING(g) --reaped--> FORMING(g+1)
//      |                     |                                   |
//      +--SpawnFailed        +--all exited 0             +--> DONE (status 0) | STOPPED | FAILED
//
// On the first failure every other worker is killed at once and reaped; then the next generation
// starts from the newest checkpoint. A worker that reports a lost peer (76), or that its agent has
// killed, is a consequence (cause.h). It is the primary failure only if there is no other.
// A new step on disk, or in the memory of all ranks, refills the restart budget; max_no_progress
// restarts in a row without one end the run with 93, and so does an exit code that comes again at
// the same step after a restart. A full disk is not restarted.
// Thread: one. Time: monotonic nanoseconds, never smaller than at the call before.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/control/coordinator_options.h"
#include "launcher/control/events.h"
#include "launcher/control/incident.h"
#include "launcher/control/phase_silences.h"
#include "launcher/control/straggler.h"

namespace lockstep::launcher::control {

// kStopped: it was asked to stop, and every worker has saved.
enum class State { kForming, kRunning, kStopping, kDone, kStopped, kFailed };
const char* state_name(State state);

class Supervisor {
 public:
  explicit Supervisor(SupervisorOptions options);

  // Ensures: after Finish nothing is asked for any more.
  JobActions on(const JobEvent& event, int64_t now_ns);
  State state() const { return state_; }
  int64_t generation() const { return generation_; }
  int64_t world_size() const { return static_cast<int64_t>(workers_.size()); }
  int64_t safe_step() const { return safe_step_; }
  int64_t restarts_since_safe() const { return restarts_since_safe_; }
  const std::vector<Incident>& incidents() const { return incidents_; }
  // Whether another generation would follow, if one of its nodes were lost now.
  bool may_restart() const {
    return state_ != State::kStopping && asked_to_stop_ns_ < 0 &&
           restarts_since_safe_ < std::min(options_.max_restarts, options_.max_no_progress);
  }

  // Whether a planned change may be asked for: a step is complete, and none was asked for.
  bool may_change() const {
    return state_ == State::kRunning && !first_step_pending_ && !change_asked_;
  }

 private:
  struct Worker {
    bool alive = false;
    Sample last;
    int64_t changed_ns = 0;
    int64_t stopped_ns = -1;  // seen stopped from then on, without progress; -1: it runs
    int64_t base_step = -1;   // the first step that it computed in this generation
  };
  enum class Reason { kNone, kFailure, kResume, kUser };
  // How a generation is stopped.
  struct Stop {
    Reason reason = Reason::kNone;
    bool killed = false;        // its workers were
    bool cause_logged = false;  // of a failure
    int64_t grace_from_ns = 0;  // when the grace of a stop that was asked for began
  };

  void on_event(const Begin&);
  void on_event(const TookOver& event);
  void on_event(const Nodes& event);
  void on_event(const Committed&);
  void on_event(const Started&);
  void on_event(const SpawnFailed& event);
  void on_event(const WorkersExited& event);
  void on_event(const Tick& event);
  void on_event(const StopRequested& event);
  void on_event(const ChangeAsked&);

  void form();
  void note_exit(const WorkerExit& exit);
  void note_progress(const Progress& progress);
  void note_first_step(const Worker& worker);
  void note_computing(Worker& worker);
  void begin_failure(double detect_ms);
  void log_cause();
  void begin_graceful_stop(Reason reason);
  void forgive_sleep();
  void look_at(Worker& worker, const Sample& sample);
  void look_for_hang();
  void look_for_straggler();
  void kill_all();
  int64_t hang_after_ns(const Worker& worker) const;
  bool stopped_for_good(const Worker& worker) const;
  bool on_its_way_out(const Worker& worker) const;
  void enforce_grace();
  void conclude();  // every worker is reaped: what now?
  void conclude_failure();
  bool ended_for_change() const;
  void conclude_change();
  Incident* under_way();  // what the generation follows; null: it is the first one
  int64_t next_per_node() const;
  void finish(int exit_status, std::string reason);
  void finish_stopped(std::string reason);
  void record(std::string event, int rank = -1, std::string reason = "", int64_t step = -1);

  bool terminal() const { return state_ >= State::kDone; }
  double since_ms(int64_t then_ns) const { return static_cast<double>(now_ns_ - then_ns) * 1e-6; }
  bool any_alive() const;

  const SupervisorOptions options_;
  State state_ = State::kForming;
  Stop stop_;  // of this generation
  int64_t generation_, now_ns_ = 0, per_node_ = 0;
  size_t restarts_ = 0;
  std::vector<Worker> workers_;
  SlowRank slow_rank_;
  int64_t said_slow_ = -1;  // the rank of this generation that was logged last; -1: none
  PhaseSilences silences_;
  std::vector<SeenExit> exits_;    // of this generation, in the order seen
  int64_t asked_to_stop_ns_ = -1;  // for the first time; -1: it was not
  bool first_step_pending_ = false;
  Pace pace_;           // of this generation
  double step_s_ = -1;  // of the last generation that has a pace
  Nodes nodes_;
  bool waiting_ = true;         // forming, without a generation under way
  int64_t phase_start_ns_ = 0;  // of the recovery phase that runs, or of a stop that was asked
  int64_t looked_ns_ = 0;       // the last Tick
  int64_t safe_step_, restarts_since_safe_;  // on disk or in memory; since it grew
  std::vector<Incident> incidents_;
  bool change_asked_ = false;       // of this generation
  std::optional<Incident> change_;  // a planned one, until its first step or a failure
  JobActions actions_;
};

}  // namespace lockstep::launcher::control
