// What a supervisor sees in the progress pages of the workers: the first step, a rank that is slow,
// a hang, and a stop that takes too long.
#include <algorithm>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "launcher/control/supervisor.h"

namespace lockstep::launcher::control {
namespace {

bool same(const Progress& a, const Progress& b) {
  return std::tie(a.step, a.phase, a.save_phase, a.committed_step, a.snapshot_step, a.unix_ns) ==
         std::tie(b.step, b.phase, b.save_phase, b.committed_step, b.snapshot_step, b.unix_ns);
}

bool saving(const Progress& progress) {
  return progress.phase == Phase::kSave || progress.save_phase == SavePhase::kStaging ||
         progress.save_phase == SavePhase::kWriting || progress.save_phase == SavePhase::kVoting;
}

// A process that was stopped for a shorter time, by whatever means, is left alone.
constexpr double kStoppedSeconds = 5;
// Two ticks that are so far apart say that this process slept: its job was suspended, or it had no
// processor.
constexpr double kAsleepSeconds = 2;

int64_t to_ns(double seconds) { return static_cast<int64_t>(seconds * 1e9); }

}  // namespace

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
  LOCKSTEP_CHECK(slept_ns >= 0, "slept for ", slept_ns);
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
  LOCKSTEP_CHECK(worker.alive && worker.changed_ns <= now_ns_, worker.changed_ns, " ", now_ns_);
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
  pace_.note(sample.progress, now_ns_);
  note_first_step(worker);
  note_computing(worker);
}

// A step is complete when its page moves on from computing it.
void Supervisor::note_first_step(const Worker& worker) {
  const Progress& progress = worker.last.progress;
  if (!first_step_pending_ || worker.base_step < 0) return;
  if (progress.step == worker.base_step && computing(progress.phase)) return;
  first_step_pending_ = false;
  record("first_step", -1, "", worker.base_step);
  Incident* const incident = under_way();
  if (incident == nullptr) return;
  incident->first_step_ms = since_ms(phase_start_ns_);
  incident->first_step = worker.base_step;
  LoggedEvent recovered{change_ ? "changed" : "recovered",
                        generation_,
                        world_size(),
                        -1,
                        phases_text(*incident),
                        worker.base_step};
  recovered.redone_steps = incident->redone_steps();
  recovered.redone_s = incident->redone_s();
  actions_.emplace_back(std::move(recovered));
  change_.reset();
}

void Supervisor::note_computing(Worker& worker) {
  const Progress& progress = worker.last.progress;
  if (worker.base_step >= 0 || !computing(progress.phase)) return;
  worker.base_step = progress.first_step > 0 ? progress.first_step : progress.step;
  Incident* const incident = under_way();
  if (!first_step_pending_ || incident == nullptr || incident->restore_ms >= 0) return;
  incident->restore_ms = since_ms(phase_start_ns_);
  phase_start_ns_ = now_ns_;
}

// A step is as fast as its slowest rank. A slow rank is logged once, and goes when it can.
void Supervisor::look_for_straggler() {
  std::vector<int64_t> slot_us;
  for (const Worker& worker : workers_) slot_us.push_back(worker.last.progress.slot_us);
  const int64_t step = workers_.front().last.progress.step;
  const auto found = slow_rank_.look(step, slot_us, now_ns_);
  if (!found) return;
  const auto rank = static_cast<int64_t>(found->rank);
  LOCKSTEP_CHECK(rank < world_size(), rank, " of ", world_size());
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
  LOCKSTEP_CHECK(state_ == State::kRunning && culprit >= 0, state_name(state_), " ", culprit);
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
  return worker.alive && !stopped_for_good(worker) && (saving(progress) || (must_end && goes_on));
}

// After a validation comes a step, and then the save. Each of them has the whole grace.
void Supervisor::enforce_grace() {
  LOCKSTEP_CHECK(state_ == State::kStopping && stop_.reason != Reason::kNone, state_name(state_));
  if (stop_.killed) return;
  const auto any_worker = [this](auto predicate) {
    return std::any_of(workers_.begin(), workers_.end(), predicate);
  };
  if (any_worker([this](const Worker& worker) { return on_its_way_out(worker); }))
    stop_.grace_from_ns = now_ns_;
  const int64_t waited_ns = now_ns_ - phase_start_ns_;
  const double most_s = std::max(options_.grace_s, options_.hang_s);
  // Without a process that is stopped the others cannot save.
  const bool over = waited_ns >= to_ns(most_s) ||
                    now_ns_ - stop_.grace_from_ns >= to_ns(options_.grace_s) ||
                    any_worker([this](const Worker& w) { return w.alive && stopped_for_good(w); });
  if (!over) return;
  const double waited_s = static_cast<double>(waited_ns) * 1e-9;
  record("grace_over", -1, text("killed: still alive ", fixed(waited_s, 1), " s after SIGTERM"));
  kill_all();
}

}  // namespace lockstep::launcher::control
