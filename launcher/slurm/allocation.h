// The allocation that a launch lives in: says at the start what will happen when nodes go or time
// ends, and at the end carries out what `decide` says. Slurm is asked in child processes with a
// deadline, before the first worker starts and after the last one has ended; in between only what
// time is left (ask_time_left), and nobody waits for it.
//
//   Allocation::find --> begin --> (the run) --> conclude
//
// Every launcher of a job makes one; which of them asks Slurm is fixed at the start (the step's
// first task: all have just been started, nobody coordinates yet) and found out at the end (who
// coordinated). Should the first task be lost in between, one start is not counted.
// Outside of Slurm, and in an allocation that somebody typed in, it does nothing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/file_system.h"
#include "config/choices.h"
#include "launcher/slurm/job.h"
#include "launcher/slurm/policy.h"
#include "launcher/slurm/time_left.h"

namespace lockstep::launcher::slurm {

// Of all questions to Slurm at one moment together: at the start, at the end, to end the job.
inline constexpr int64_t kDeadlineMs = 3000;
// How long, and how often, is asked whether a batch host lives whose agent was lost: Slurm itself
// misses a node after SlurmdTimeout, 300 s where the site does not say otherwise.
inline constexpr int64_t kNoticeMs = 360'000, kAskAgainMs = 15'000;

// Runs {"scontrol", …}, {"srun", …} or {"scancel", …} for at most `timeout_ms`; its output.
// Errors: kNotFound (no such program), kTimeout, kIo (it refused).
using RunSlurm =
    std::function<Result<std::string>(const std::vector<std::string>& command, int64_t timeout_ms)>;
Result<std::string> run_slurm(const std::vector<std::string>& command, int64_t timeout_ms);

// Borrows the file system and the clock. Thread: one.
class Allocation {
 public:
  struct Options {
    Requeue requeue = Requeue::kAuto;
    std::filesystem::path run_folder;
    std::string resume_command;
    // The newest committed step; -1: none.
    std::function<int64_t()> committed_step;
  };
  // Asks Slurm in the step's first task alone: a thousand agents at once would be a burden.
  static Allocation find(FileSystem& file_system, Clock& clock, RunSlurm run,
                         const Environment& environment, Options options);

  // Logs the plan (in the step's first task) and counts this start. Errors: kAborted when Slurm has
  // started the job too often without a new checkpoint; the launcher then leaves with
  // kExitNoProgress.
  Result<void> begin();

  // Asks Slurm again; none: nothing ends the job. Between `begin` and `conclude`, where nobody else
  // calls this object, any thread may. Errors: Slurm did not answer, or not with what is asked for.
  Result<std::optional<TimeLeft>> ask_time_left();

  // After the run, by the one launcher that speaks for the job: requeues, ends the job where nobody
  // else would, or neither. Says how to go on with what has ended unfinished. `nodes`:
  // Slurm's names of those that took part until the end; our own need not be among them. Returns
  // what to exit with.
  int conclude(int run_status, const std::vector<std::string>& nodes = {});

  bool in_job() const { return job_.has_value(); }
  Policy policy() const;
  std::string plan() const;  // some lines; empty outside of a job

 private:
  Allocation(FileSystem& file_system, Clock& clock, RunSlurm run, Options options)
      : file_system_(file_system),
        clock_(clock),
        run_(std::move(run)),
        options_(std::move(options)) {}
  Result<std::string> ask(const std::vector<std::string>& command);
  void start_questions() { deadline_ns_ = clock_.monotonic_ns() + kDeadlineMs * 1'000'000; }
  Result<void> look_at_job();
  Result<std::optional<TimeLeft>> look_at_time();
  bool batch_host_is_gone(const std::vector<std::string>& nodes, bool looked);
  std::string lost_nodes(const std::vector<std::string>& nodes) const;
  int act(int run_status, const std::vector<std::string>& nodes);
  std::string resume_line() const;
  int requeue(int run_status);
  void end_job();

  FileSystem& file_system_;
  Clock& clock_;
  RunSlurm run_;
  Options options_;
  std::optional<Job> job_;
  std::optional<TimeLeft> left_;  // at the start
  std::string unknown_;           // why Slurm could not be asked
  int64_t deadline_ns_ = 0;
};

}  // namespace lockstep::launcher::slurm
