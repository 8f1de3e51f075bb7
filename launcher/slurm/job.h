// What is known of the Slurm job that we run in: from the environment alone, and then, where
// scontrol answers, from `scontrol -o show job`. Pure: text goes in, values come out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/host/environment.h"
#include "launcher/slurm/policy.h"

namespace lockstep::launcher::slurm {

// Set by our batch scripts, 1 or 0: what containers without scontrol cannot ask, and what Slurm
// never tells (--no-kill is in no answer of scontrol's).
inline constexpr const char* kNoKillVariable = "LOCKSTEP_SLURM_NO_KILL";
inline constexpr const char* kRequeueVariable = "LOCKSTEP_SLURM_REQUEUE";

struct Job {
  std::string id;          // 123; 120_3 of an array: as scontrol and scancel take it
  std::string node;        // ours
  bool in_step = false;    // started by srun: Slurm's signals reach us
  bool first_task = true;  // of the step
  int64_t restarts = 0;
  std::optional<bool> requeue, no_kill, batch;
  std::optional<int64_t> seconds_left;  // until the time limit; none: not known, or no limit
  bool unlimited = false;               // known to have no time limit
  // Of scontrol's answer; empty without one.
  std::string state, reason, batch_host, end_time, reservation;
  std::string script, folder;      // what was submitted, with its arguments, and where
  std::vector<std::string> nodes;  // without those that Slurm took out of the job
};

// None outside of a Slurm job.
std::optional<Job> job_from(const Environment& environment);
// Adds what `answer`, the one line of `scontrol -o show job ID`, says. Errors: kCorrupt when it is
// not such a line.
Result<void> add_answer(Job& job, std::string_view answer);
// What the last --no-kill, --no-kill=off or -k of a batch script's #SBATCH lines says; none when
// they say nothing of it. As for sbatch, they end with the first line that is no comment.
std::optional<bool> no_kill_of_script(std::string_view script);

// "[days-]hours:minutes:seconds"; none for UNLIMITED, INVALID and the like.
std::optional<int64_t> seconds_of(std::string_view duration);
// A field of an answer of one line: "BatchHost" -> "node3". Empty when there is none.
std::string field_of(std::string_view answer, std::string_view name);

// What is not known counts as the case that needs more care: never requeue, Slurm kills.
Policy policy_of(const Job& job);

// TERM came from scancel, not from a time limit or a pre-emption: the job ends and Slurm names no
// reason of its own. (scontrol requeue would bring such a job back to life.)
bool is_cancelled(const Job& job);

}  // namespace lockstep::launcher::slurm
