#include "launcher/slurm/allocation.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "launcher/control/incident.h"
#include "launcher/host/pipe.h"
#include "launcher/slurm/starts.h"

namespace lockstep::launcher::slurm {
namespace {

using Then = Decision::Then;

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Happening happening_of(int run_status, bool cancelled) {
  if (run_status == kExitDone) return Happening::kFinished;
  if (cancelled) return Happening::kCancelled;
  if (run_status == kExitResume) return Happening::kStopAsked;
  if (run_status == kExitPeerLost) return Happening::kBelowMinimum;
  return Happening::kGivenUp;
}

}  // namespace

Result<std::string> run_slurm(const std::vector<std::string>& command, int64_t timeout_ms) {
  LOCKSTEP_TRY(ProgramOutput done,
               run_program(command.front(), {command.begin() + 1, command.end()}, "", timeout_ms,
                           {}, {"SLURM_TIME_FORMAT"}));  // times are read as they are without it
  if (done.exit_status == 0) return std::move(done.standard_output);
  std::string words;
  for (const std::string& word : command) words += (words.empty() ? "" : " ") + word;
  return Error{Code::kIo, text("`", words, "` ended with status ", done.exit_status)};
}

Allocation Allocation::find(FileSystem& file_system, Clock& clock, RunSlurm run,
                            const Environment& environment, Options options) {
  Allocation allocation(file_system, clock, std::move(run), std::move(options));
  allocation.job_ = job_from(environment);
  if (!allocation.in_job()) return allocation;
  if (!allocation.job_->first_task) return allocation;
  allocation.start_questions();
  if (const auto looked = allocation.look_at_job(); !looked)
    allocation.unknown_ = looked.error().message;
  else if (auto left = allocation.look_at_time())
    allocation.left_ = std::move(left.value());
  return allocation;
}

Result<std::string> Allocation::ask(const std::vector<std::string>& command) {
  const int64_t left_ms = (deadline_ns_ - clock_.monotonic_ns()) / 1'000'000;
  if (left_ms <= 0)
    return Error{Code::kTimeout, text("Slurm did not answer within ", kDeadlineMs, " ms")};
  return run_(command, left_ms);
}

Result<void> Allocation::look_at_job() {
  LOCKSTEP_TRY(const std::string answer, ask({"scontrol", "-o", "show", "job", job_->id}));
  LOCKSTEP_RETURN_IF_ERROR(add_answer(*job_, answer));
  if (job_->no_kill || !job_->batch.value_or(true)) return {};
  // Only the job's own script says whether it asked for --no-kill.
  const auto script = ask({"scontrol", "write", "batch_script", job_->id, "-"});
  if (script) job_->no_kill = no_kill_of_script(script.value());
  return {};
}

Result<std::optional<TimeLeft>> Allocation::look_at_time() {
  LOCKSTEP_TRY(const std::string reservations, ask({"scontrol", "-o", "show", "reservation"}));
  return time_left(*job_, reservations, clock_.unix_ns() / 1'000'000'000);
}

Result<std::optional<TimeLeft>> Allocation::ask_time_left() {
  if (!in_job()) return std::optional<TimeLeft>();
  start_questions();
  LOCKSTEP_RETURN_IF_ERROR(look_at_job());
  return look_at_time();
}

Policy Allocation::policy() const {
  if (!in_job()) return Policy::kNone;
  Job job = *job_;
  if (options_.requeue == Requeue::kNever) job.requeue = false;
  if (options_.requeue == Requeue::kForce) job.requeue = true;
  return policy_of(job);
}

std::string Allocation::plan() const {
  if (!in_job()) return "";
  const Policy policy = this->policy();
  std::string out =
      text("Slurm: job ", job_->id, ", start ", job_->restarts + 1, ", ", policy_name(policy));
  if (left_)
    out += text(", ", duration_text(static_cast<double>(left_->seconds)), " left until ",
                left_->what, " at ", left_->at);
  for (const Happening happening : kHappenings)
    if (happening != Happening::kFinished)
      out += text("\n  ", happening_name(happening), ": ", decision_text(policy, happening));
  const auto note = [&out](const auto&... words) { out += text("\n  ! ", words...); };
  if (policy == Policy::kNone) return out;
  if (!unknown_.empty()) note("cannot ask Slurm about this job: ", unknown_);
  if (!job_->requeue.has_value() && options_.requeue == Requeue::kAuto)
    note("cannot tell whether the job may be requeued, so it is never requeued (", kRequeueVariable,
         "=1 allows it)");
  if (!job_->no_kill.has_value())
    note(
        "cannot tell whether --no-kill is set, so Slurm is expected to end the job with the first "
        "lost node (",
        kNoKillVariable, "=1 says otherwise)");
  if (options_.requeue == Requeue::kNever && job_->requeue.value_or(false))
    note(
        "the job was submitted with --requeue: Slurm itself may start it again when a node is "
        "lost");
  if (!job_->in_step)
    note(
        "lockstep was not started by srun: Slurm's signals before the time limit reach job steps "
        "only");
  return out;
}

Result<void> Allocation::begin() {
  if (!in_job()) return {};
  if (job_->first_task) {
    log_info(plan());
    if (policy() == Policy::kNone) return {};
  }
  const Starts starts = count_start(read_starts(file_system_, options_.run_folder), job_->id,
                                    job_->restarts, options_.committed_step());
  if (job_->first_task)
    if (const auto written = write_starts(file_system_, options_.run_folder, starts); !written)
      log_warning("slurm_starts.json: ", written.error().message);
  if (may_start(starts)) return {};
  return Error{Code::kAborted, text("Slurm has started job ", job_->id, " ", starts.count,
                                    " times without a new checkpoint, so it is not started again; "
                                    "look at the last errors in logs/ of the run folder")};
}

// The batch script waits for us on its host. When that host is gone, srun and the script went with
// it, and Slurm keeps the allocation until its time limit. An agent may be lost where its node is
// not, so two are asked: srun, whether it reaches the host, and Slurm, whether it has taken it out
// of the job, which it does late. Only these two answers count: that srun fails says nothing
// (slurmctld is slow, there is no srun), and a scancel would take a living script with it.
// `looked`: what is known of the job is of now.
bool Allocation::batch_host_is_gone(const std::vector<std::string>& nodes, bool looked) {
  const std::string& host = job_->batch_host;
  if (host.empty() || host == job_->node || contains(nodes, host)) return false;
  const int64_t limit_ns = clock_.monotonic_ns() + kNoticeMs * 1'000'000;
  for (bool told = false;; told = true) {
    if (looked && is_cancelled(*job_)) return false;
    if (looked && !contains(job_->nodes, host)) return true;
    const auto reached = ask({"srun", "--overlap", "--mpi=none", "--nodes=1", "--ntasks=1",
                              "--nodelist=" + host, "true"});
    if (reached) return false;
    if (clock_.monotonic_ns() >= limit_ns) break;
    if (!told)
      log_info("Slurm: cannot tell yet whether the batch host ", host,
               " is up: ", reached.error().message, "; asking again for up to ", kNoticeMs / 60'000,
               " minutes");
    clock_.sleep_ns(kAskAgainMs * 1'000'000);
    start_questions();
    looked = look_at_job().ok();
  }
  log_warning("Slurm: cannot tell whether the batch host ", host, " is up; if job ", job_->id,
              " does not end by itself, run `scancel ", job_->id, "`");
  return false;
}

// Of the job's, those that Slurm still counts and we do not; separated by commas.
std::string Allocation::lost_nodes(const std::vector<std::string>& nodes) const {
  std::string lost;
  for (const std::string& node : nodes.empty() ? nodes : job_->nodes)
    if (node != job_->node && !contains(nodes, node)) lost += (lost.empty() ? "" : ",") + node;
  return lost;
}

// What a person would type: a batch job is submitted again.
std::string Allocation::resume_line() const {
  const bool batch = policy() != Policy::kNone && !job_->script.empty();
  if (!batch) return options_.resume_command;
  return text("cd ", shell_quoted(job_->folder), " && sbatch ", job_->script);
}

int Allocation::conclude(int run_status, const std::vector<std::string>& nodes) {
  if (!in_job()) return run_status;
  const int status = act(run_status, nodes);
  const std::string line = resume_line();
  if (status != kExitDone && status != kExitConfig && !line.empty())
    log_info("to resume from the newest checkpoint: ", line);
  return status;
}

int Allocation::act(int run_status, const std::vector<std::string>& nodes) {
  start_questions();
  const auto looked = look_at_job();
  if (!looked) log_warning("cannot ask Slurm about this job: ", looked.error().message);
  if (policy() == Policy::kNone) return run_status;
  if (const std::string lost = lost_nodes(nodes); !lost.empty())
    log_info("Slurm: lost by the end of the run: ", lost, "; `sbatch --exclude=", lost,
             "` keeps it out of the next job");
  const Happening happening = happening_of(run_status, is_cancelled(*job_));
  const Decision decision = decide(policy(), happening);
  if (decision.then == Then::kRequeue) return requeue(run_status);
  if (decision.end_job && batch_host_is_gone(nodes, looked.ok())) end_job();
  return run_status;
}

int Allocation::requeue(int run_status) {
  const auto give_up = [this](const std::string& why, int status) {
    log_error(why);
    return status;
  };
  const Starts starts = read_starts(file_system_, options_.run_folder);
  if (!may_start_again(starts, options_.committed_step()))
    return give_up(
        text("not requeued: the job has started ", starts.count, " times without a new checkpoint"),
        kExitNoProgress);
  if (options_.requeue == Requeue::kForce && job_->requeue == false) {
    const auto allowed = ask({"scontrol", "update", "jobid=" + job_->id, "Requeue=1"});
    if (!allowed) return give_up(text("not requeued: ", allowed.error().message), run_status);
  }
  log_info("Slurm: job ", job_->id, " is requeued");
  if (const auto asked = ask({"scontrol", "requeue", job_->id}); !asked)
    return give_up(text("not requeued: ", asked.error().message), run_status);
  return kExitDone;
}

void Allocation::end_job() {
  log_info("Slurm: the batch script ran on ", job_->batch_host,
           ", which is gone, so this node cancels job ", job_->id);
  start_questions();
  if (const auto ended = ask({"scancel", job_->id}); !ended)
    log_error("cannot end the allocation: ", ended.error().message, "; run `scancel ", job_->id,
              "`");
}

}  // namespace lockstep::launcher::slurm
