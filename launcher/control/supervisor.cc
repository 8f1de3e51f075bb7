#include "launcher/control/supervisor.h"

#include <algorithm>
#include <csignal>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/text.h"

namespace lockstep::launcher::control {
namespace {

bool same(const Progress& a, const Progress& b) {
  return std::tie(a.step, a.phase, a.save_phase, a.committed_step, a.snapshot_step, a.unix_ns) ==
         std::tie(b.step, b.phase, b.save_phase, b.committed_step, b.snapshot_step, b.unix_ns);
}

bool computing(Phase phase) { return phase == Phase::kStep || phase == Phase::kUpdate; }

bool saving(const Progress& progress) {
  return progress.phase == Phase::kSave || progress.save_phase == SavePhase::kStaging ||
         progress.save_phase == SavePhase::kWriting || progress.save_phase == SavePhase::kVoting;
}

bool peer_lost(const WorkerExit& exit) {
  return exit.chose_its_code() && exit.exit_code == kExitPeerLost;
}

// A process that was stopped for a shorter time, by whatever means, is left alone.
constexpr double kStoppedSeconds = 5;
// Two ticks that are so far apart say that this process slept: its job was suspended, or it had no
// processor.
constexpr double kAsleepSeconds = 2;
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

int64_t to_ns(double seconds) { return static_cast<int64_t>(seconds * 1e9); }

}  // namespace

const char* state_name(State state) {
  switch (state) {
    case State::kForming: return "forming";
    case State::kRunning: return "running";
    case State::kStopping: return "stopping";
    case State::kDone: return "done";
    case State::kFailed: return "failed";
  }
  return "unknown";
}

JobActions Supervisor::on(const JobEvent& event, int64_t now_ns) {
  LOCKSTEP_CHECK(now_ns >= now_ns_, "time went back from ", now_ns_, " to ", now_ns);
  now_ns_ = now_ns;
  actions_.clear();
  if (!terminal()) std::visit([this](const auto& e) { on_event(e); }, event);
  return std::exchange(actions_, {});
}

void Supervisor::on_event(const Begin&) {
  LOCKSTEP_CHECK(workers_.empty(), "begun twice");
  const auto& list = options_.nproc_per_node;
  per_node_ = list.empty() ? options_.default_nproc : list.front();
  form();
}

void Supervisor::on_event(const TookOver& event) {
  LOCKSTEP_CHECK(workers_.empty(), "begun twice");
  restarts_ = options_.nproc_per_node.size();
  workers_.resize(static_cast<size_t>(event.world_size));  // of the generation that was lost
  exits_.push_back({event.lost, false});
  begin_failure(event.silent_ms);
  conclude_failure();
}

void Supervisor::on_event(const Nodes& event) {
  nodes_ = event;
  if (state_ != State::kForming) return;
  if (event.count < 0) finish(kExitResume, event.reason);
  if (event.count < 0 || per_node_ == 0) return;
  if (!waiting_) ++generation_;
  form();
}

void Supervisor::form() {
  state_ = State::kForming;
  stop_ = {};
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
  if (!incidents_.empty()) incidents_.back().next_world_size = world_size();
  record("generation_start", -1, text("world size ", world_size()));
  actions_.emplace_back(Prepare{generation_, world_size(), nodes_.count});
}

void Supervisor::on_event(const Committed&) {
  if (state_ != State::kForming) return;
  if (!incidents_.empty()) incidents_.back().agree_ms = since_ms(phase_start_ns_);
  phase_start_ns_ = now_ns_;
}

void Supervisor::on_event(const Started&) {
  if (state_ != State::kForming) return;
  state_ = State::kRunning;
  for (Worker& worker : workers_) {
    worker.alive = true;
    worker.changed_ns = now_ns_;
  }
  looked_ns_ = now_ns_;
  first_step_pending_ = true;
  if (!incidents_.empty()) incidents_.back().respawn_ms = since_ms(phase_start_ns_);
  phase_start_ns_ = now_ns_;
  record("spawned");
  if (asked_to_stop_ns_ >= 0) begin_graceful_stop(Reason::kUser);
}

void Supervisor::on_event(const SpawnFailed& event) {
  if (state_ == State::kForming) finish(kExitBug, text("cannot start workers: ", event.message));
}

void Supervisor::on_event(const WorkersExited& event) {
  if (state_ != State::kRunning && state_ != State::kStopping) return;
  bool failed = false, resume = false;
  for (const WorkerExit& exit : event.exits) {
    note_exit(exit);
    failed = failed || exit.failed();
    resume = resume || exit.wants_resume();
  }
  if (state_ == State::kRunning && failed) {
    begin_failure(since_ms(event.alive_ns));
  } else if (state_ == State::kRunning && resume) {
    begin_graceful_stop(Reason::kResume);
  } else if (failed && !stop_.killed && any_alive()) {
    kill_all();  // the others cannot save without this worker
  }
  for (const WorkerExit& exit : event.exits)
    record("worker_exit", exit.rank, cause_text(exit), exit.progress.step);
  if (any_alive()) return;
  if (state_ == State::kRunning) {
    finish(kExitDone, "done");
  } else {
    conclude();
  }
}

void Supervisor::note_exit(const WorkerExit& exit) {
  const auto rank = static_cast<size_t>(exit.rank);
  LOCKSTEP_CHECK(rank < workers_.size() && workers_[rank].alive, "rank ", exit.rank);
  workers_[rank].alive = false;
  workers_[rank].last.progress = exit.progress;
  note_progress(exit.progress);
  note_first_step(workers_[rank]);
  exits_.push_back({exit, stop_.killed});
}

void Supervisor::note_progress(const Progress& progress) {
  const int64_t safe_step = std::max(progress.committed_step, progress.snapshot_step);
  if (safe_step <= safe_step_) return;
  safe_step_ = safe_step;
  restarts_since_safe_ = 0;
}

// A step is complete when its page moves on from computing it.
void Supervisor::note_first_step(const Worker& worker) {
  const Progress& progress = worker.last.progress;
  if (!first_step_pending_ || worker.base_step < 0) return;
  if (progress.step == worker.base_step && computing(progress.phase)) return;
  first_step_pending_ = false;
  record("first_step", -1, "", worker.base_step);
  if (incidents_.empty()) return;
  Incident& incident = incidents_.back();
  incident.first_step_ms = since_ms(phase_start_ns_);
  incident.first_step = worker.base_step;
  record("recovered", -1, phases_text(incident), worker.base_step);
}

void Supervisor::note_computing(Worker& worker) {
  const Progress& progress = worker.last.progress;
  if (worker.base_step >= 0 || !computing(progress.phase)) return;
  worker.base_step = progress.step;
  if (!first_step_pending_ || incidents_.empty() || incidents_.back().restore_ms >= 0) return;
  incidents_.back().restore_ms = since_ms(phase_start_ns_);
  phase_start_ns_ = now_ns_;
}

void Supervisor::begin_failure(double detect_ms) {
  state_ = State::kStopping;
  stop_.reason = Reason::kFailure;
  phase_start_ns_ = now_ns_;
  first_step_pending_ = false;
  Incident incident;
  incident.generation = generation_;
  incident.world_size = world_size();
  incident.detect_ms = detect_ms;
  incidents_.push_back(incident);
  stop_.killed = true;
  if (any_alive()) actions_.emplace_back(KillWorkers{});
  const WorkerExit& first = exits_[primary_index()].exit;
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
  state_ = State::kStopping;
  stop_.reason = reason;
  phase_start_ns_ = stop_.grace_from_ns = now_ns_;
  if (any_alive()) actions_.emplace_back(TermWorkers{});
}

void Supervisor::on_event(const Tick& event) {
  if (state_ != State::kRunning && state_ != State::kStopping) return;
  forgive_sleep();
  const size_t count = std::min(event.samples.size(), workers_.size());
  for (size_t rank = 0; rank < count; ++rank)
    if (workers_[rank].alive) look_at(workers_[rank], event.samples[rank]);
  if (state_ == State::kRunning) {
    look_for_straggler();
    look_for_hang();
  } else {
    enforce_grace();
  }
}

// The workers may have slept as well, and may wake a moment later than this process.
void Supervisor::forgive_sleep() {
  const int64_t slept_ns = now_ns_ - std::exchange(looked_ns_, now_ns_);
  if (slept_ns < to_ns(kAsleepSeconds)) return;
  for (Worker& worker : workers_) {
    worker.changed_ns += slept_ns;
    worker.stopped_ns = -1;
  }
  if (state_ != State::kStopping || stop_.reason == Reason::kFailure) return;
  phase_start_ns_ += slept_ns;
  stop_.grace_from_ns += slept_ns;
}

void Supervisor::look_at(Worker& worker, const Sample& sample) {
  const bool moved = !same(sample.progress, worker.last.progress);
  if (moved) {
    silences_.note(worker.last.progress.phase, now_ns_ - worker.changed_ns);
    worker.changed_ns = now_ns_;
  }
  if (moved || !sample.stopped)
    worker.stopped_ns = -1;
  else if (worker.stopped_ns < 0)
    worker.stopped_ns = now_ns_;
  worker.last = sample;
  note_progress(sample.progress);
  note_first_step(worker);
  note_computing(worker);
}

// A step is as fast as its slowest rank. A slow rank is logged once, and goes when it can.
void Supervisor::look_for_straggler() {
  std::vector<int64_t> slot_us;
  for (const Worker& worker : workers_) slot_us.push_back(worker.last.progress.slot_us);
  const int64_t step = workers_.front().last.progress.step;
  const auto found = slow_rank_.look(step, slot_us, now_ns_);
  if (!found) return;
  const auto rank = static_cast<int64_t>(found->rank);
  if (std::exchange(said_slow_, rank) != rank)
    record("straggler", static_cast<int>(rank), straggler_text(*found), step);
  actions_.emplace_back(ReplaceRank{rank, straggler_text(*found)});
}

int64_t Supervisor::hang_after_ns(const Worker& worker) const {
  const Progress& progress = worker.last.progress;
  const int64_t most_ns = to_ns(options_.hang_s);
  return saving(progress) ? most_ns : silences_.hang_ns(progress.phase, most_ns);
}

bool Supervisor::stopped_for_good(const Worker& worker) const {
  return worker.stopped_ns >= 0 && now_ns_ - worker.stopped_ns >= to_ns(kStoppedSeconds);
}

// One stuck rank stops all ranks within a step, and samples from other nodes come late. So all
// ranks count that were silent for half of their time, or are stopped for good. Of these a stopped
// process comes first, then the one with the lowest step, then the one silent for longest.
void Supervisor::look_for_hang() {
  if (options_.hang_s <= 0) return;
  int culprit = -1;
  bool hangs = false;
  auto order = [this](int rank) {
    const Worker& worker = workers_[static_cast<size_t>(rank)];
    return std::tuple(!worker.last.stopped, worker.last.progress.step, worker.changed_ns);
  };
  for (int rank = 0; rank < static_cast<int>(workers_.size()); ++rank) {
    const Worker& worker = workers_[static_cast<size_t>(rank)];
    const int64_t silent_ns = now_ns_ - worker.changed_ns, limit_ns = hang_after_ns(worker);
    const bool stopped = stopped_for_good(worker);
    if (!worker.alive || (!stopped && silent_ns < limit_ns / 2)) continue;
    hangs = hangs || stopped || silent_ns >= limit_ns;
    if (culprit < 0 || order(rank) < order(culprit)) culprit = rank;
  }
  if (!hangs) return;
  const Worker& worker = workers_[static_cast<size_t>(culprit)];
  WorkerExit exit;
  exit.rank = culprit;
  exit.hung_s = since_ms(worker.changed_ns) * 1e-3;
  exit.stopped = worker.last.stopped;
  exit.progress = worker.last.progress;
  exits_.push_back({exit, false});
  begin_failure(since_ms(worker.changed_ns));
}

// Whether the worker saves, or is in a phase that must end before a save, and makes progress.
bool Supervisor::on_its_way_out(const Worker& worker) const {
  const Progress& progress = worker.last.progress;
  const bool must_end = progress.phase == Phase::kLoad || progress.phase == Phase::kWarmup ||
                        progress.phase == Phase::kEval;
  const bool goes_on = now_ns_ - worker.changed_ns < to_ns(options_.grace_s);
  return worker.alive && (saving(progress) || (must_end && goes_on));
}

// After a validation comes a step, and then the save. Each of them has the whole grace.
void Supervisor::enforce_grace() {
  if (stop_.killed) return;
  if (std::any_of(workers_.begin(), workers_.end(),
                  [this](const Worker& worker) { return on_its_way_out(worker); }))
    stop_.grace_from_ns = now_ns_;
  const int64_t waited_ns = now_ns_ - phase_start_ns_;
  const double most_s = std::max(options_.grace_s, options_.hang_s);
  if (now_ns_ - stop_.grace_from_ns < to_ns(options_.grace_s) && waited_ns < to_ns(most_s)) return;
  const double waited_s = static_cast<double>(waited_ns) * 1e-9;
  record("grace_over", -1, text("killed: still alive ", fixed(waited_s, 1), " s after SIGTERM"));
  kill_all();
}

void Supervisor::kill_all() {
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
    finish(kExitResume, "asked to stop while waiting for nodes");
  } else if (state_ == State::kRunning) {
    begin_graceful_stop(Reason::kUser);
  } else if (at_once) {
    kill_all();
  }
}

void Supervisor::conclude() {
  if (stop_.reason == Reason::kFailure) {
    conclude_failure();
    return;
  }
  const auto all_of = [this](auto predicate) {
    return std::all_of(exits_.begin(), exits_.end(),
                       [&](const Seen& seen) { return predicate(seen.exit); });
  };
  const auto config = [](const WorkerExit& e) {
    return e.chose_its_code() && e.exit_code == kExitConfig;
  };
  if (all_of([](const WorkerExit& e) { return e.done(); })) {
    finish(kExitDone, "done");
  } else if (!all_of([&](const WorkerExit& e) { return !config(e); })) {
    finish(kExitConfig, "wrong config or input");
  } else if (all_of([](const WorkerExit& e) { return !e.failed(); })) {
    finish(kExitResume, "stopped after saving");
  } else {
    finish(kExitResume, "stopped; not every worker saved, so the newest checkpoint remains");
  }
}

void Supervisor::conclude_failure() {
  Incident& incident = incidents_.back();
  incident.stop_ms = since_ms(phase_start_ns_);
  const size_t first = primary_index();
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
  int64_t lost = 0;
  for (const Seen& seen : exits_) {
    if (!seen.after_kill && seen.exit.failed() && !peer_lost(seen.exit)) ++lost;
  }
  const int64_t left = world_size() - std::max<int64_t>(lost, 1);
  return left >= std::max<int64_t>(options_.min_nproc, 1) ? left : 0;
}

// The failure that no other one explains. Of several in one look a signal comes before an exit
// code: a worker that could still choose its exit code had heard of the other's death.
size_t Supervisor::primary_index() const {
  // 0: unexplained; 1: a lost peer; 2: the end of a worker that we killed or that had not failed.
  const auto explained = [](const Seen& seen) {
    if (!seen.exit.failed() || (seen.after_kill && seen.exit.signal == SIGKILL)) return 2;
    return peer_lost(seen.exit) ? 1 : 0;
  };
  const auto order = [&](const Seen& seen) {
    return std::tuple(explained(seen), seen.after_kill, seen.exit.chose_its_code());
  };
  const auto first =
      std::min_element(exits_.begin(), exits_.end(),
                       [&](const Seen& a, const Seen& b) { return order(a) < order(b); });
  LOCKSTEP_CHECK(first != exits_.end(), "no worker has ended");
  return static_cast<size_t>(first - exits_.begin());
}

bool Supervisor::any_alive() const {
  return std::any_of(workers_.begin(), workers_.end(),
                     [](const Worker& worker) { return worker.alive; });
}

void Supervisor::finish(int exit_status, std::string reason) {
  state_ = exit_status == kExitDone ? State::kDone : State::kFailed;
  actions_.emplace_back(Finish{exit_status, std::move(reason)});
}

void Supervisor::record(std::string event, int rank, std::string reason, int64_t step) {
  actions_.emplace_back(
      LoggedEvent{std::move(event), generation_, world_size(), rank, std::move(reason), step});
}

}  // namespace lockstep::launcher::control
