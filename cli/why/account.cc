#include "cli/why/account.h"

#include <algorithm>

#include "base/text.h"
#include "cli/shared/json_fields.h"
#include "cli/status/state_text.h"

namespace lockstep::cli {
namespace {

std::string signal_words(const std::string& reason) {
  if (reason == "SIGINT") return "Ctrl-C (SIGINT)";
  if (reason == "SIGTERM") return "SIGTERM, as `scancel`, a preemption or `kill` sends it";
  if (reason == "SIGUSR1") return "SIGUSR1, as Slurm sends it before the time limit";
  if (reason == "SIGHUP") return "SIGHUP, as a terminal sends it when it is closed";
  return reason;
}

bool is_time_limit(const std::string& reason) {
  return reason == "SIGUSR1" || reason.find("allocation") != reason.npos;
}

std::string upper_first(std::string words) {
  if (!words.empty() && words[0] >= 'a' && words[0] <= 'z')
    words[0] = static_cast<char>(words[0] - 'a' + 'A');
  return words;
}

// Tells of one run. Every member adds to the account.
class Teller {
 public:
  explicit Teller(const RunFacts& facts) : facts_(facts) {
    account_.folder = facts.folder;
    account_.state = facts.status.state;
    account_.now = state_text(facts.status);
    account_.exit_status = facts.status.membership.exit_status;
    account_.on_gpus = facts.on_gpus;
  }

  Account tell() {
    choose_launch();
    if (refused_) {
      tell_refusal();
    } else if (launch_ != nullptr && !launch_->failures.empty() && !was_stopped()) {
      tell_failure();
    } else if (was_stopped()) {
      tell_stop();
    } else {
      tell_without_failure();
    }
    finish();
    return std::move(account_);
  }

 private:
  const RunStatus& status() const { return facts_.status; }
  bool over() const { return status().over(); }
  int64_t saved_step() const { return status().checkpoint_step; }

  // A command that was refused comes after the launch that made the run what it is.
  void choose_launch() {
    if (facts_.launches.empty()) return;
    launch_ = &facts_.launches.back();
    refused_ = newest_was_refused(facts_.launches);
    account_.failures = std::ssize(launch_->failures);
    account_.generation = launch_->generation;
  }

  // Of a stop after which no worker failed.
  bool was_stopped() const {
    if (launch_ == nullptr || launch_->stop_reason.empty() || launch_->end.empty()) return false;
    const auto& failures = launch_->failures;
    return launch_->exit_status == launcher::kExitResume &&
           (failures.empty() || failures.back().recovered());
  }

  // Failures in a row without a new checkpoint have one cause: the first.
  const Failure& first_failure() const {
    const auto count = std::ssize(launch_->failures);
    int64_t before = 0;
    if (launch_->end == "failed")
      before = std::clamp<int64_t>(status().membership.restarts, 0, count - 1);
    return launch_->failures[static_cast<size_t>(count - 1 - before)];
  }

  // An audit names another rank than the one that ended first, and perhaps several.
  Failure blamed(const Failure& given) const {
    Failure failure = given;
    if (cause_of(failure) != Cause::kWrongBits || failure.node_barred) return failure;
    for (const checkpoint::Suspects& each : status().suspected) {
      if (each.found_at_step != failure.step) continue;
      const bool one = each.ranks.size() == 1;
      failure.rank = one ? each.ranks.front() : -1;
      failure.node = one && !each.hosts.empty() ? each.hosts.front() : "";
      failure.pid = failure.local_rank = -1;
    }
    return failure;
  }

  void tell_of(const Failure& failure) {
    account_.cause = cause_of(failure);
    account_.what = upper_first(what_text(account_.cause, failure));
    account_.unix_s = failure.unix_s;
    account_.step = failure.step;
    account_.generation = failure.generation;
    account_.rank = failure.rank;
    account_.node = failure.node;
    account_.pid = failure.pid;
    account_.error = failure.error;
    if (facts_.on_gpus) account_.gpu = failure.local_rank;
    account_.chain = chain_of(*launch_, failure.first_event);
  }

  void tell_failure() {
    const Failure failure = blamed(first_failure());
    tell_of(failure);
    const bool ended = !launch_->end.empty() && launch_->end != "done";
    account_.cost = ended || (over() && !failure.recovered()) ? cost_of_end(*launch_, facts_)
                                                              : cost_of(failure, *launch_, facts_);
    account_.did = did_text(failure);
    account_.to_do = to_do_about(account_.cause, failure, ended || needs_command(), saved_step());
    if (!ended && !needs_command())
      account_.to_do.insert(account_.to_do.begin(),
                            failure.recovered()
                                ? "Nothing now: the run went on by itself. If it happens again:"
                                : "Wait: the run is recovering. If it does not come back:");
    if (launch_->failures.size() > 1) add_total();
  }

  bool needs_command() const { return over() && status().state != "done"; }

  std::string did_text(const Failure& failure) const {
    std::string words;
    if (failure.recovered()) words = recovery_text(failure);
    if (launch_->end == "failed") return words.empty() ? end_text() : words + " " + end_text();
    if (launch_->end == "done") return words + " The run reached its end.";
    if (status().state == "agent_gone")
      return words + (words.empty() ? "" : " ") + "Later the launcher itself ended without a word.";
    if (words.empty()) return "It stopped the other ranks and is starting again.";
    return text(words, " It is at step ", status().step, " now.");
  }

  static std::string recovery_text(const Failure& failure) {
    const bool fewer = failure.next_world_size < failure.world_size;
    return text("It stopped the other ranks, went back to step ", failure.resumed_step - 1,
                " and trained again with ", counted(failure.next_world_size, "rank"),
                fewer ? text(" instead of ", failure.world_size) : "", " after ",
                fixed(failure.recovered_s - failure.unix_s, 1), " s.");
  }

  std::string end_text() const {
    const int64_t code = launch_->exit_status, restarts = status().membership.restarts;
    const std::string ended = text("It stopped all ranks and ended with status ", code);
    const std::string& reason = launch_->end_reason;
    switch (code) {
      case launcher::kExitConfig: return ended + ", because the same input would fail again.";
      case launcher::kExitDiskFull: return ended + ", because a restart does not make room.";
      case launcher::kExitWrongBits:
        return ended +
               ", because this device would compute wrongly again. Checkpoints since the "
               "last sound audit are marked as suspect.";
      default: break;
    }
    if (reason.find("as before the restart") != reason.npos)
      return text(
          "It restarted once, failed at the same step in the same way, and gave up with "
          "status ",
          code, ".");
    if (code == launcher::kExitNoProgress || reason.find("are used up") != reason.npos)
      return text("It restarted ", restarts == 1 ? "once" : text(restarts, " times"),
                  ", made no new checkpoint, and gave up with status ", code, ".");
    if (const size_t why = reason.find("; "); why != reason.npos)
      return text(ended, ": ", reason.substr(why + 2), ".");
    return ended +
           ". It was not restarted, because `lockstep train` and --max-restarts 0 restart "
           "nothing.";
  }

  void add_total() {
    Cost& total = account_.total;
    for (const Failure& each : launch_->failures) {
      const Cost cost = cost_of(each, *launch_, facts_);
      if (cost.ranks < 0) continue;
      total.ranks = std::max(total.ranks, cost.ranks);
      total.steps_again =
          std::max<int64_t>(0, total.steps_again) + std::max<int64_t>(0, cost.steps_again);
      total.seconds_again = std::max(0.0, total.seconds_again) + std::max(0.0, cost.seconds_again);
      total.seconds_down = std::max(0.0, total.seconds_down) + std::max(0.0, cost.seconds_down);
    }
  }

  void tell_refusal() {
    const Failure none;
    const Failure& failure = launch_->failures.empty() ? none : launch_->failures.back();
    tell_of(failure);
    if (launch_->failures.empty()) account_.cause = cause_of_end(*launch_);
    account_.what =
        text("The newest command was refused before its first step: ",
             launch_->failures.empty() ? launch_->end_reason : what_text(account_.cause, failure));
    account_.exit_status = launch_->exit_status;
    account_.did = "It computed nothing and changed no checkpoint; the run is as it was before.";
    account_.to_do = to_do_about(account_.cause, failure, true, saved_step());
    account_.cost.steps_again = 0;
    const LaunchRecord& before = facts_.launches[facts_.launches.size() - 2];
    account_.remarks.push_back(before.end.empty()
                                   ? "The launch before it says no end."
                                   : text("The launch before it ended with status ",
                                          before.exit_status, ": ", before.end_reason, "."));
  }

  void tell_stop() {
    if (account_.failures > 0)
      account_.remarks.push_back(text("Before that the launch recovered from ",
                                      counted(account_.failures, "failure"), "."));
    const bool limit = is_time_limit(launch_->stop_reason);
    account_.cause = limit ? Cause::kTimeLimit : Cause::kStopRequested;
    account_.unix_s = launch_->stop_unix_s;
    const bool saved = launch_->end_reason.find("not every worker saved") == std::string::npos;
    account_.what = text(limit ? "The time of the job ended: " : "A stop was requested: ",
                         signal_words(launch_->stop_reason));
    account_.step = status().step;
    account_.cost = cost_of_end(*launch_, facts_);
    account_.did = saved ? text("All ranks saved step ", saved_step(), " and ended with status ",
                                launch_->exit_status, ".")
                         : text("It ended with status ", launch_->exit_status,
                                ", but not every rank saved; the newest checkpoint counts.");
    if (saved_step() < 0) account_.did = "It ended before there was a checkpoint.";
    const Failure unsaved = saved ? Failure() : first_unsaved();
    if (unsaved.rank >= 0) {
      account_.did +=
          text(" The first that did not save: ", who_text(unsaved), ", ", unsaved.reason, ".");
      account_.rank = unsaved.rank;
      account_.node = unsaved.node;
      account_.to_do = to_do_about(cause_of(unsaved), unsaved, false, saved_step());
      account_.to_do.pop_back();
    } else if (!saved)
      account_.to_do.push_back(
          "Give the ranks more time to save: launcher.grace_seconds, and the "
          "seconds of `--signal` under Slurm.");
    account_.to_do.push_back(resume_text(saved_step()));
    account_.chain = chain_of(*launch_, first_event("stop_requested"));
  }

  // A worker that failed while all were asked to stop, and was not killed for being late.
  Failure first_unsaved() const {
    Failure failure;
    for (const auto& event : launch_->events) {
      if (string_or_empty(event, "event") != "worker_exit") continue;
      failure.reason = string_or_empty(event, "reason");
      failure.exit = launcher::parse_cause(failure.reason);
      const bool killed = failure.exit.agent_did == launcher::AgentDid::kKilled;
      if (!failure.exit.failed() || launcher::control::peer_lost(failure.exit) || killed) continue;
      failure.rank = integer_or(event, "rank", -1);
      failure.node = string_or_empty(event, "node");
      return failure;
    }
    return {};
  }

  size_t first_event(const std::string& name) const {
    size_t at = 0;
    while (at < launch_->events.size() && string_or_empty(launch_->events[at], "event") != name)
      ++at;
    return at;
  }

  void tell_without_failure() {
    if (status().state == "done") return say_well("It is done");
    if (status().state == "agent_gone") return tell_agent_gone();
    if (launch_ != nullptr && launch_->end == "failed") return tell_end();
    if (launch_ == nullptr && status().membership.state.empty()) return tell_unwatched();
    if (!status().waiting_for.empty()) return tell_waiting();
    const auto suspect = std::find_if(status().ranks.begin(), status().ranks.end(),
                                      [](const RankStatus& rank) { return !rank.suspect.empty(); });
    if (suspect != status().ranks.end()) return tell_suspect(*suspect);
    if (status().running()) return say_well("It is running well");
    account_.what = "Nobody knows from this machine whether the run goes on";
    account_.to_do.push_back("Run `lockstep status` on the machine of its agent.");
  }

  void say_well(const std::string& words) {
    account_.well = true;
    account_.what = text(words, status().step < 0 ? "" : text(", at step ", status().step),
                         status().planned_steps < status().step || status().step < 0
                             ? ""
                             : text(" of ", status().planned_steps),
                         "; nothing has failed");
  }

  void tell_agent_gone() {
    account_.cause = Cause::kAgentGone;
    account_.pid = status().membership.agent_pid;
    account_.what = text("The launcher (process ", account_.pid,
                         ") ended without a word, so it was killed or its machine went down; its "
                         "ranks ended with it");
    account_.step = status().step;
    if (!facts_.steps.empty()) account_.unix_s = facts_.steps.back().unix_s;
    if (launch_ != nullptr) account_.cost = cost_of_end(*launch_, facts_);
    account_.did = "Nothing: nobody was left to restart it.";
    account_.to_do = {resume_text(saved_step()),
                      "If nobody killed it, look for the cause with `dmesg` and in the job's log."};
  }

  void tell_end() {
    const Failure none;
    account_.cause = cause_of_end(*launch_);
    account_.what = upper_first(launch_->end_reason);
    account_.unix_s = launch_->end_unix_s;
    account_.step = status().step;
    account_.cost = cost_of_end(*launch_, facts_);
    account_.did = text("It ended with status ", launch_->exit_status, ".");
    if (account_.cause == Cause::kNoNodes)
      account_.to_do = {"Check the missing nodes, or allow fewer with `--nnodes MIN:MAX`.",
                        resume_text(saved_step())};
    else
      account_.to_do = to_do_about(account_.cause, none, true, saved_step());
    account_.chain = chain_of(*launch_, first_event("waiting_for_nodes"));
  }

  void tell_unwatched() {
    account_.cause = Cause::kUnwatched;
    account_.step = status().step;
    const std::string last = text("rank 0 logged step ", status().step, " last");
    if (status().running()) return say_well("It is running well");
    account_.what =
        text("No agent watched this run, because srun or torchrun started its ranks; ", last);
    if (!facts_.steps.empty()) account_.unix_s = facts_.steps.back().unix_s;
    account_.cost = cost_of_end({}, facts_);
    account_.did =
        "Nothing is known: the ranks write their last words to the output of srun or "
        "torchrun.";
    account_.to_do = {"Look for the first ERROR in that output.", resume_text(saved_step())};
  }

  void tell_waiting() {
    account_.cause = Cause::kNoNodes;
    account_.what = text("The job waits for nodes: ", status().waiting_for);
    account_.unix_s = facts_.now_s - status().waiting_s;
    account_.did = "It goes on as soon as enough nodes are here.";
    account_.to_do = {
        "Start the missing agents, or check why their nodes do not reach the others."};
    if (launch_ != nullptr) account_.chain = chain_of(*launch_, first_event("waiting_for_nodes"));
  }

  void tell_suspect(const RankStatus& rank) {
    account_.cause = Cause::kSuspect;
    account_.rank = rank.member.rank;
    account_.node = rank.member.node;
    account_.pid = rank.member.pid;
    account_.step = rank.member.progress.step;
    account_.what =
        text("It is running, but rank ", rank.member.rank, " is suspect: ", rank.suspect);
    account_.did = "Nothing yet: the launcher restarts the ranks if it does not go on.";
    account_.to_do = {"Wait, and look again with `lockstep status`."};
  }

  // What is the same for all.
  void finish() {
    if (account_.unix_s >= 0) account_.ago_s = std::max(0.0, facts_.now_s - account_.unix_s);
    for (const std::string& audit : status().audits)
      account_.remarks.push_back("Audit: " + audit + ".");
    for (const std::string& line : status().membership.health)
      account_.remarks.push_back("Hardware: " + line + ".");
    if (account_.well) return;
    if (!facts_.slurm_job.empty())
      account_.remarks.push_back("The last job of this run in Slurm was " + facts_.slurm_job + ".");
  }

  const RunFacts& facts_;
  const LaunchRecord* launch_ = nullptr;  // the newest; null: no agent ever ran
  bool refused_ = false;
  Account account_;
};

}  // namespace

Account account_of(const RunFacts& facts) { return Teller(facts).tell(); }

}  // namespace lockstep::cli
