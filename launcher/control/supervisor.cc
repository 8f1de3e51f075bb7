#include "launcher/control/supervisor.h"

#include <algorithm>
#include <csignal>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/text.h"

namespace lockstep::launcher::control {
namespace {

// Whether a worker would end like this again: it chose an exit code that says no more than "a bug"
// in the middle of a step, or had too little memory, as it did at the same step before. What a file
// server refuses for a moment is met while a checkpoint is loaded.
bool repeats(const WorkerExit& before, const WorkerExit& now) {
  const int status = failure_status(now);
  const Phase phase = now.progress.phase;
  const bool tells = status == kExitNoMemory || (status == kExitBug && computing(phase));
  const bool alike = before.chose_its_code() && now.chose_its_code()
                         ? before.exit_code == now.exit_code
                         : before.no_memory && now.no_memory;
  return tells && alike && before.progress.step == now.progress.step &&
         before.progress.phase == phase;
}

constexpr int64_t kSecondStopNs = 1'000'000'000;  // after the first one

}  // namespace

const char* state_name(State state) {
  switch (state) {
    case State::kForming: return "forming";
    case State::kRunning: return "running";
    case State::kStopping: return "stopping";
    case State::kDone: return "done";
    case State::kStopped: return "stopped";
    case State::kFailed: return "failed";
  }
  return "unknown";
}

Supervisor::Supervisor(SupervisorOptions options)
    : options_(std::move(options)),
      generation_(options_.first_generation),
      slow_rank_(options_.slow_factor, options_.slow_s),
      safe_step_(options_.safe_step),
      restarts_since_safe_(options_.restarts_since_safe) {
  LOCKSTEP_CHECK(generation_ >= 0 && safe_step_ >= -1 && restarts_since_safe_ >= 0, generation_,
                 " ", safe_step_, " ", restarts_since_safe_);
  LOCKSTEP_CHECK(options_.last_nproc() >= 1, options_.last_nproc(), " workers a node");
}

JobActions Supervisor::on(const JobEvent& event, int64_t now_ns) {
  LOCKSTEP_CHECK(now_ns >= now_ns_, "time went back from ", now_ns_, " to ", now_ns);
  now_ns_ = now_ns;
  actions_.clear();
  if (!terminal()) std::visit([this](const auto& e) { on_event(e); }, event);
  return std::exchange(actions_, {});
}

void Supervisor::on_event(const Begin&) {
  LOCKSTEP_CHECK(state_ == State::kForming && per_node_ == 0, state_name(state_));
  LOCKSTEP_CHECK(workers_.empty(), "begun twice");
  const auto& list = options_.nproc_per_node;
  per_node_ = list.empty() ? options_.default_nproc : list.front();
  form();
}

void Supervisor::on_event(const TookOver& event) {
  LOCKSTEP_CHECK(workers_.empty(), "begun twice");
  LOCKSTEP_CHECK(state_ == State::kForming && event.world_size >= 1 && event.lost.failed(),
                 state_name(state_), ", world size ", event.world_size);
  restarts_ = options_.nproc_per_node.size();
  workers_.resize(static_cast<size_t>(event.world_size));  // of the generation that was lost
  exits_.push_back({event.lost, false});
  begin_failure(event.silent_ms);
  conclude_failure();
}

void Supervisor::on_event(const Nodes& event) {
  LOCKSTEP_CHECK(event.next_generation >= 0, event.next_generation);
  nodes_ = event;
  if (state_ != State::kForming) return;
  if (event.count < 0) finish(kExitResume, event.reason);
  if (event.count < 0 || per_node_ == 0) return;
  if (!waiting_) ++generation_;
  form();
}

void Supervisor::form() {
  LOCKSTEP_CHECK(!any_alive() && !terminal(), "generation ", generation_, " is ",
                 state_name(state_));
  state_ = State::kForming;
  stop_ = {};
  change_asked_ = false;
  pace_ = {};
  exits_.clear();
  phase_start_ns_ = now_ns_;
  generation_ = std::max(generation_, nodes_.next_generation);
  waiting_ = nodes_.count == 0;
  if (waiting_) {
    record("waiting_for_nodes");
    return;
  }
  LOCKSTEP_CHECK(per_node_ >= 1 && nodes_.count >= 1, per_node_, " x ", nodes_.count);
  workers_.assign(static_cast<size_t>(per_node_ * nodes_.count), Worker{});
  slow_rank_ = SlowRank(options_.slow_factor, options_.slow_s);
  said_slow_ = -1;
  if (Incident* const now = under_way()) now->next_world_size = world_size();
  record("generation_start", -1, text("world size ", world_size()));
  actions_.emplace_back(Prepare{generation_, world_size(), nodes_.count});
}

void Supervisor::on_event(const Committed&) {
  if (state_ != State::kForming) return;
  LOCKSTEP_CHECK(!waiting_, "generation ", generation_, " waits for nodes");
  if (Incident* const now = under_way()) now->agree_ms = since_ms(phase_start_ns_);
  phase_start_ns_ = now_ns_;
}

void Supervisor::on_event(const Started&) {
  if (state_ != State::kForming) return;
  LOCKSTEP_CHECK(!waiting_ && !workers_.empty(), "generation ", generation_, " has no workers");
  state_ = State::kRunning;
  for (Worker& worker : workers_) {
    worker.alive = true;
    worker.changed_ns = now_ns_;
  }
  looked_ns_ = now_ns_;
  first_step_pending_ = true;
  if (Incident* const now = under_way()) now->respawn_ms = since_ms(phase_start_ns_);
  phase_start_ns_ = now_ns_;
  record("spawned");
  if (asked_to_stop_ns_ >= 0) begin_graceful_stop(Reason::kUser);
}

void Supervisor::on_event(const SpawnFailed& event) {
  if (state_ == State::kForming) finish(kExitBug, text("cannot start workers: ", event.message));
}

void Supervisor::on_event(const WorkersExited& event) {
  if (state_ != State::kRunning && state_ != State::kStopping) return;
  LOCKSTEP_CHECK(!event.exits.empty(), "no worker has ended");
  bool failed = false, resume = false;
  for (const WorkerExit& exit : event.exits) {
    note_exit(exit);
    // [P26] Nobody ends for a change that was not asked for.
    failed = failed || exit.failed() || (exit.changed() && !change_asked_);
    resume = resume || exit.wants_resume();
  }
  if (state_ == State::kRunning && failed) {
    begin_failure(since_ms(event.alive_ns));
  } else if (stop_.reason == Reason::kFailure) {
    log_cause();
  } else if (state_ == State::kRunning && resume) {
    begin_graceful_stop(Reason::kResume);
  } else if (failed && !stop_.killed && any_alive()) {
    kill_all();  // the others cannot save without this worker
  }
  for (const WorkerExit& exit : event.exits)
    record("worker_exit", exit.rank, cause_text(exit), exit.progress.step);
  if (any_alive()) return;
  const auto changed = [](const SeenExit& seen) { return seen.exit.changed(); };
  if (state_ == State::kRunning && ended_for_change()) {
    conclude_change();
  } else if (state_ == State::kRunning && std::none_of(exits_.begin(), exits_.end(), changed)) {
    finish(kExitDone, "done");
  } else {
    if (state_ == State::kRunning) begin_failure(0);
    conclude();
  }
}

void Supervisor::note_exit(const WorkerExit& exit) {
  const auto rank = static_cast<size_t>(exit.rank);
  LOCKSTEP_CHECK(rank < workers_.size() && workers_[rank].alive, "rank ", exit.rank);
  workers_[rank].alive = false;
  workers_[rank].last.progress = exit.progress;
  note_progress(exit.progress);
  pace_.note(exit.progress, now_ns_);
  note_first_step(workers_[rank]);
  exits_.push_back({exit, stop_.killed});
}

void Supervisor::note_progress(const Progress& progress) {
  const int64_t safe_step = std::max(progress.committed_step, progress.snapshot_step);
  if (safe_step <= safe_step_) return;
  safe_step_ = safe_step;
  restarts_since_safe_ = 0;
}

void Supervisor::begin_failure(double detect_ms) {
  LOCKSTEP_CHECK(state_ == State::kForming || state_ == State::kRunning, state_name(state_));
  LOCKSTEP_CHECK(!exits_.empty() && !stop_.killed, exits_.size(), " ends");
  state_ = State::kStopping;
  stop_.reason = Reason::kFailure;
  phase_start_ns_ = now_ns_;
  first_step_pending_ = false;
  Incident incident;
  incident.generation = generation_;
  incident.world_size = world_size();
  incident.detect_ms = detect_ms;
  if (pace_.step_s() >= 0) step_s_ = pace_.step_s();
  incident.step_s = step_s_;
  incident.done_step = pace_.done;
  // What was lost before is lost until a step follows.
  if (pace_.done < 0 && !incidents_.empty() && !incidents_.back().recovered())
    incident.done_step = incidents_.back().done_step;
  if (pace_.done < 0 && change_) incident.done_step = change_->done_step;
  change_.reset();
  incidents_.push_back(incident);
  stop_.killed = true;
  if (any_alive()) actions_.emplace_back(KillWorkers{});
  log_cause();
}

// A lost peer is no cause: the node of the worker that was lost may report later. Then its end is
// logged, or when all have ended the lost peer is, for lack of anything better.
void Supervisor::log_cause() {
  const WorkerExit& first = exits_[primary_index(exits_)].exit;
  if (stop_.cause_logged || (peer_lost(first) && any_alive())) return;
  stop_.cause_logged = true;
  LoggedEvent failed{"failure_detected", generation_,       world_size(),
                     first.rank,         cause_text(first), first.progress.step};
  std::string log;
  for (const std::string& line : first.log_lines) log += line + "\n";
  // What killed a process did not log it.
  if (first.chose_its_code()) failed.error = last_error(log);
  actions_.emplace_back(std::move(failed));
}

// Workers save and leave by themselves; grace_s bounds how long that may take.
void Supervisor::begin_graceful_stop(Reason reason) {
  LOCKSTEP_CHECK(state_ == State::kRunning && !stop_.killed, state_name(state_));
  state_ = State::kStopping;
  stop_.reason = reason;
  phase_start_ns_ = stop_.grace_from_ns = now_ns_;
  if (any_alive()) actions_.emplace_back(TermWorkers{});
}

void Supervisor::kill_all() {
  LOCKSTEP_CHECK(state_ == State::kStopping && !stop_.killed, state_name(state_));
  stop_.killed = true;
  actions_.emplace_back(KillWorkers{});
}

void Supervisor::on_event(const StopRequested& event) {
  if (asked_to_stop_ns_ < 0) asked_to_stop_ns_ = now_ns_;
  // Only a second Ctrl-C kills: Slurm sends TERM after USR1 while the checkpoint is being written.
  // One Ctrl-C can arrive twice at once, by two ways.
  const bool at_once = state_ == State::kStopping && event.signal == SIGINT && !stop_.killed &&
                       now_ns_ - asked_to_stop_ns_ >= kSecondStopNs;
  const std::string why = event.signal == kAllocationEnds ? "the allocation is about to end"
                                                          : signal_text(event.signal);
  record("stop_requested", -1, why + (at_once ? " again" : ""));
  if (state_ == State::kForming && waiting_) {
    finish_stopped("asked to stop while waiting for nodes");
  } else if (state_ == State::kRunning) {
    begin_graceful_stop(Reason::kUser);
  } else if (at_once) {
    kill_all();
  }
}

void Supervisor::conclude() {
  LOCKSTEP_CHECK(state_ == State::kStopping && !any_alive(), state_name(state_));
  LOCKSTEP_CHECK(stop_.reason != Reason::kNone && !exits_.empty(), exits_.size(), " ends");
  if (stop_.reason == Reason::kFailure) {
    conclude_failure();
    return;
  }
  if (ended_for_change()) return conclude_change();  // a stop was asked too late: it comes next
  const auto all_of = [this](auto predicate) {
    return std::all_of(exits_.begin(), exits_.end(),
                       [&](const SeenExit& seen) { return predicate(seen.exit); });
  };
  const auto config = [](const WorkerExit& e) {
    return e.chose_its_code() && e.exit_code == kExitConfig;
  };
  if (all_of([](const WorkerExit& e) { return e.done(); })) {
    finish(kExitDone, "done");
  } else if (!all_of([&](const WorkerExit& e) { return !config(e); })) {
    finish(kExitConfig, "wrong config or input");
  } else if (!all_of([](const WorkerExit& e) { return !e.failed() && !e.changed(); })) {
    finish(kExitResume, "stopped; not every worker saved, so the newest checkpoint remains");
  } else if (asked_to_stop_ns_ >= 0) {
    finish_stopped("stopped after saving");
  } else {
    finish(kExitResume, "the workers ended by themselves with exit code 75; see their last lines");
  }
}

void Supervisor::on_event(const ChangeAsked&) {
  if (!may_change() || asked_to_stop_ns_ >= 0) return;
  change_asked_ = true;
  phase_start_ns_ = now_ns_;
  actions_.emplace_back(ChangeWorkers{});
}

// [P26]
bool Supervisor::ended_for_change() const {
  return change_asked_ && !any_alive() && !exits_.empty() &&
         std::all_of(exits_.begin(), exits_.end(), [this](const SeenExit& seen) {
           return seen.exit.changed() &&
                  seen.exit.progress.step == exits_.front().exit.progress.step;
         });
}

// The next generation goes on after the step that the workers have ended with. It is no restart.
void Supervisor::conclude_change() {
  LOCKSTEP_CHECK_RULE(P26, ended_for_change(), "generation ", generation_, ": ", exits_.size(),
                      " ends");
  LOCKSTEP_CHECK(!terminal() && !any_alive(), state_name(state_));
  change_.emplace();
  change_->generation = generation_;
  change_->world_size = world_size();
  change_->detect_ms = 0;
  change_->stop_ms = since_ms(phase_start_ns_);
  change_->done_step = std::max(pace_.done, exits_.front().exit.progress.step);
  record("change_agreed", -1, "", change_->done_step);
  if (nodes_.count < 0) return finish(kExitResume, nodes_.reason);
  ++generation_;
  form();
}

Incident* Supervisor::under_way() {
  if (change_) return &*change_;
  return incidents_.empty() ? nullptr : &incidents_.back();
}

void Supervisor::conclude_failure() {
  LOCKSTEP_CHECK(stop_.reason == Reason::kFailure && !incidents_.empty(), incidents_.size());
  LOCKSTEP_CHECK(incidents_.back().generation == generation_, incidents_.back().generation);
  Incident& incident = incidents_.back();
  incident.stop_ms = since_ms(phase_start_ns_);
  if (options_.without == Rule::kP26 && change_asked_) return conclude_change();
  const size_t first = primary_index(exits_);
  incident.primary = exits_[first].exit;
  for (size_t i = 0; i < exits_.size(); ++i) {
    const WorkerExit& exit = exits_[i].exit;
    // The end of a hung worker that was killed is no second end. Its log lines belong to the hang.
    if (i == first) continue;
    if (exit.rank == incident.primary.rank) {
      incident.primary.log_lines = exit.log_lines;
    } else {
      incident.consequences.push_back(exit);
    }
  }
  record("stopped_all");
  const int status = failure_status(incident.primary);
  const std::string cause = text("rank ", incident.primary.rank, " ", cause_text(incident.primary));
  const bool again = restarts_since_safe_ > 0 && incidents_.size() > 1 &&
                     repeats(incidents_[incidents_.size() - 2].primary, incident.primary);
  if (status == kExitConfig || status == kExitNoProgress || status == kExitDiskFull ||
      status == kExitWrongBits) {
    finish(status, cause);
  } else if (asked_to_stop_ns_ >= 0) {
    finish(kExitResume, text(cause, "; not restarted, because a stop was requested"));
  } else if (options_.max_restarts == 0) {
    finish(status, cause);
  } else if (again) {
    finish(status == kExitBug ? kExitNoProgress : status,
           text(cause, " at step ", incident.primary.progress.step,
                ", as before the restart; another restart would fail in the same way"));
  } else if (restarts_since_safe_ >= options_.max_no_progress) {
    finish(kExitNoProgress, text(cause, "; ", restarts_since_safe_,
                                 " restarts without a new committed step or snapshot"));
  } else if (restarts_since_safe_ >= options_.max_restarts) {
    finish(status, text(cause, "; ", restarts_since_safe_, " restarts are used up"));
  } else if (nodes_.count < 0) {
    finish(kExitResume, text(cause, "; ", nodes_.reason));
  } else if (const int64_t next = next_per_node(); next < 1) {
    finish(kExitResume, text(cause, "; fewer than ", options_.min_nproc, " workers are left"));
  } else {
    per_node_ = next;
    ++restarts_since_safe_;
    ++restarts_;
    ++generation_;
    form();
  }
}

// 0: below the minimum.
int64_t Supervisor::next_per_node() const {
  const auto& list = options_.nproc_per_node;
  if (const size_t next = restarts_ + 1; next < list.size()) return list[next];
  if (!options_.shrink) return options_.last_nproc();
  const int64_t left = world_size() - std::max<int64_t>(lost_workers(exits_), 1);
  return left >= std::max<int64_t>(options_.min_nproc, 1) ? left : 0;
}

bool Supervisor::any_alive() const {
  return std::any_of(workers_.begin(), workers_.end(),
                     [](const Worker& worker) { return worker.alive; });
}

void Supervisor::finish(int exit_status, std::string reason) {
  LOCKSTEP_CHECK(!terminal() && !any_alive(), state_name(state_), ", and then ", exit_status);
  state_ = exit_status == kExitDone ? State::kDone : State::kFailed;
  actions_.emplace_back(Finish{exit_status, std::move(reason)});
}

void Supervisor::finish_stopped(std::string reason) {
  state_ = State::kStopped;
  actions_.emplace_back(Finish{kExitResume, std::move(reason)});
}

void Supervisor::record(std::string event, int rank, std::string reason, int64_t step) {
  actions_.emplace_back(
      LoggedEvent{std::move(event), generation_, world_size(), rank, std::move(reason), step});
}

}  // namespace lockstep::launcher::control
