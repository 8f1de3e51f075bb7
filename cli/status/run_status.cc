#include "cli/status/run_status.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "base/environment.h"
#include "base/json.h"
#include "base/number.h"
#include "base/text.h"
#include "checkpoint/record/catalog.h"
#include "checkpoint/record/suspects.h"
#include "cli/shared/event_list.h"
#include "cli/shared/json_fields.h"
#include "cli/shared/launch_record.h"
#include "cli/shared/restart_count.h"
#include "cli/shared/run_args.h"
#include "cli/shared/run_listing.h"
#include "launcher/control/incident.h"
#include "launcher/control/straggler.h"
#include "launcher/host/process.h"
#include "layout/strategy.h"

namespace lockstep::cli {
namespace {

using launcher::Membership;
using nlohmann::json;

constexpr size_t kLoggedSteps = 8;  // that rates are means of
// A rank says that it is alive once a slot; a checkpoint is loaded or begun in one go.
constexpr double kSilentStep_s = 5, kSilentOther_s = 60, kSilentSteps = 3;
// What is known of other nodes is this much older: published each 5 s, under clocks that differ.
constexpr double kElsewhere_s = 6;
// Of a run on another host: agents of several nodes publish each 5 s, one alone only logs steps.
constexpr double kSilentNodes_s = 20, kSilentRun_s = 60;

double silence_limit_s(const RankStatus& rank, double step_time_s) {
  const Phase phase = rank.member.progress.phase;
  const bool in_step = phase == Phase::kStep || phase == Phase::kUpdate;
  return std::max(in_step ? kSilentStep_s : kSilentOther_s, kSilentSteps * step_time_s) +
         (rank.elsewhere ? kElsewhere_s : 0);
}

// A rank elsewhere may be as many steps behind as fit between two looks at it; at step 0 it has not
// been looked at since its generation began.
bool is_behind(const RankStatus& rank, int64_t front, double step_time_s) {
  const auto behind = static_cast<double>(front - rank.member.progress.step);
  if (!rank.elsewhere) return behind > 1;
  if (rank.member.progress.step == 0) return false;
  return step_time_s > 0 && (behind - 2) * step_time_s > kElsewhere_s;
}

bool is_silent(const Membership& membership, const std::string& node) {
  return std::any_of(membership.nodes.begin(), membership.nodes.end(),
                     [&](const auto& each) { return each.name == node && each.suspect; });
}

// Of the newest lines, those of one generation and world size.
std::vector<json> newest_steps(FileSystem& file_system, const std::filesystem::path& path) {
  std::vector<json> steps;
  for (const std::string& line : launcher::last_lines(file_system, path, 0, kLoggedSteps + 1)) {
    json step =
        parse_json(line, /*allow_exceptions=*/false);  // the first one may be the end of a line
    if (step.is_object() && step.contains("step")) steps.push_back(std::move(step));
  }
  std::erase_if(steps, [newest = steps.empty() ? json() : steps.back()](const json& step) {
    return integer_or(step, "generation", 0) != integer_or(newest, "generation", 0) ||
           integer_or(step, "world_size", 0) != integer_or(newest, "world_size", 0);
  });
  return steps;
}

// "rank 1 killed by SIGKILL at step 17", as far as it is known.
std::string failure_text(const json& event) {
  const int64_t rank = integer_or(event, "rank", -1), step = integer_or(event, "step", -1);
  return text(rank < 0 ? "" : text("rank ", rank, " "), string_or_empty(event, "reason"),
              step < 0 ? "" : text(" at step ", step));
}

// "step 1200: rank 3 on node7 has wrong bits; …"
std::string audit_text(const checkpoint::Suspects& found) {
  std::string ranks;
  for (size_t i = 0; i < found.ranks.size(); ++i)
    ranks += text(i == 0 ? "" : ", ", "rank ", found.ranks[i],
                  i < found.hosts.size() ? " on " + found.hosts[i] : "");
  return text("step ", found.found_at_step, ": ", ranks,
              found.ranks.size() == 1 ? " has wrong bits" : " contradict each other",
              "; checkpoints after step ", found.after_step,
              " are suspect, and no resume uses them");
}

// "; runs below it: a, training/b" of a folder of results; "": none are found.
std::string runs_below(FileSystem& file_system, const std::filesystem::path& folder) {
  const auto found = list_runs(file_system, folder, {.depth = 2, .runs = 8, .entries = 4096});
  std::string out;
  if (!found) return out;
  for (const FoundRun& run : found.value().runs)
    if (run.folder != folder) out += (out.empty() ? "; runs below it: " : ", ") + run.id;
  return out + (!out.empty() && found.value().cut ? ", …" : "");
}

// As the ranks' groups have it.
layout::NodeRanks node_ranks(const std::vector<RankStatus>& ranks) {
  std::map<std::string, int> of_node;
  for (const RankStatus& rank : ranks) ++of_node[rank.member.node];
  layout::NodeRanks sizes;
  for (const auto& [node, count] : of_node) {
    sizes.most = std::max(sizes.most, count);
    sizes.together = std::gcd(sizes.together, count);
  }
  return sizes;
}

// Of a job that goes on with fewer nodes where some are lost; -1: it has another policy, or one
// node.
int64_t wanted_nodes(const Config& config) {
  const auto counts = split(config.launcher.nnodes, ':');
  if (config.launcher.on_node_loss != OnNodeLoss::kShrink || counts.empty()) return -1;
  const int64_t most = parse_number(counts.back()).value_or(-1);
  return most > 1 ? most : -1;
}

// Of the first launch in its folder there is nothing else yet.
RunStatus waiting_for_first_nodes(RunStatus status) {
  status.state = "running";
  status.notes.push_back("no rank has started yet; it is not known whether the agents are alive");
  return status;
}

}  // namespace

double RunStatus::eta_s() const {
  if (!running() || step < 0 || planned_steps < step || step_time_s < 0) return -1;
  return static_cast<double>(planned_steps - step) * step_time_s;
}

void find_suspects(RunStatus& status) {
  if (!status.running()) return;
  int64_t front = -1;
  for (const RankStatus& rank : status.ranks) front = std::max(front, rank.member.progress.step);
  RankStatus* silent = nullptr;
  bool blamed = false;
  for (RankStatus& rank : status.ranks) {
    const Progress& progress = rank.member.progress;
    if (!rank.alive) {
      rank.suspect = "its process is gone";
    } else if (rank.stopped) {
      rank.suspect = "its process is stopped (SIGSTOP or a debugger)";
    } else if (rank.elsewhere && is_silent(status.membership, rank.member.node)) {
      rank.suspect = text("its node ", rank.member.node, " is silent");
    } else if (is_behind(rank, front, status.step_time_s)) {
      rank.suspect = text("it is behind: other ranks are at step ", front);
    } else if (progress.save_phase == SavePhase::kFailed) {
      rank.suspect = "its last save failed";
      continue;  // it goes on, nobody waits for it
    } else if (rank.age_s > silence_limit_s(rank, status.step_time_s) &&
               (silent == nullptr || rank.age_s > silent->age_s)) {
      silent = &rank;
    }
    blamed = blamed || !rank.suspect.empty();
  }
  std::vector<int64_t> slot_us;
  for (const RankStatus& rank : status.ranks) slot_us.push_back(rank.member.progress.slot_us);
  const auto straggler = launcher::control::find_straggler(slot_us);
  if (straggler && status.ranks[straggler->rank].suspect.empty())
    status.ranks[straggler->rank].suspect = launcher::control::straggler_text(*straggler);
  if (silent != nullptr && !blamed)
    silent->suspect = text("it made no progress for ", fixed(silent->age_s, 1), " s");
}

Result<RunStatus> RunObserver::look() {
  RunStatus status;
  auto membership = launcher::read_membership(file_system_, folder_ / "workers.json");
  const bool watched = membership.ok() || membership.error().code != Code::kNotFound;
  add_events(status);
  if (!watched && !file_system_.exists(folder_ / "run_args.json")) {
    if (!status.waiting_for.empty()) return waiting_for_first_nodes(std::move(status));
    return Error{
        Code::kNotFound,
        text(folder_.string(),
             ": no run has started in this folder (it has no workers.json and no run_args.json)",
             runs_below(file_system_, folder_))};
  }
  if (watched && !membership) return membership.error();
  if (watched) status.membership = std::move(membership).value();
  const Membership& found = status.membership;
  const bool here = watched && is_here(found);
  add_logged_steps(status);
  if (watched)
    add_state(status, here);
  else
    add_logged_state(status);
  for (const auto& member : found.workers)
    status.ranks.push_back(rank_status(member, !status.over(), here));
  add_config(status);
  if (config_) status.planned_steps = config_->training.steps;
  status.transport = transport_;
  if (config_) status.wanted_nodes = wanted_nodes(*config_);
  add_rank_rates(status);
  add_audits(status);
  add_checkpoint(status);
  find_suspects(status);
  const bool well = status.state == "done" && status.refused.empty();
  if (status.over() && !well)
    status.more = text("`lockstep why ", shell_quoted(folder_.string()), "` says more");
  return status;
}

// Whether the agent that published this runs, or ran, on this host. A process id alone would be
// anybody's on another one; the pages of its workers have names that are nowhere else, and stay
// when it is killed.
bool RunObserver::is_here(const Membership& membership) const {
  const auto is_ours = [](const auto& node) {
    return node.coordinator && node.name == host_name();
  };
  const auto has_page = [this](const auto& member) {
    return !member.progress_page.empty() && file_system_.exists(member.progress_page);
  };
  return launcher::runs_same_program(membership.agent_pid) ||
         std::any_of(membership.nodes.begin(), membership.nodes.end(), is_ours) ||
         std::any_of(membership.workers.begin(), membership.workers.end(), has_page);
}

void RunObserver::add_state(RunStatus& status, bool here) const {
  const Membership& found = status.membership;
  status.state = found.state;
  const bool stopped = asked_to_stop_ && found.exit_status == launcher::kExitResume;
  if (found.state == "failed" && stopped) status.state = "stopped";
  status.refused = refused_;
  if (!refused_.empty() && found.state == "failed") {  // what it is, it was before
    status.state = state_before_;
    status.membership.exit_status = static_cast<int>(status_before_);
    return;
  }
  if (found.state != "running" || (here && launcher::is_alive(found.agent_pid))) return;
  double age_s = status.logged_age_s;
  if (const auto written = file_system_.written_unix_ns(folder_ / "workers.json")) {
    const double written_s = static_cast<double>(clock_.unix_ns() - written.value()) * 1e-9;
    age_s = age_s < 0 ? written_s : std::min(age_s, written_s);
  }
  if (here) {
    const bool alone = found.nodes.size() < 2;
    status.state = alone || age_s > kSilentNodes_s ? "agent_gone" : "unknown";
    status.notes.push_back(
        status.over()
            ? "the agent is gone; run the same command again to resume from the newest checkpoint"
            : "the agent is gone; another one may take over");
    return;
  }
  const double limit_s = found.nodes.empty() ? kSilentRun_s : kSilentNodes_s;
  if (age_s > std::max(limit_s, kSilentSteps * status.step_time_s)) status.state = "unknown";
  std::string host = "another host";
  for (const auto& node : found.nodes)
    if (node.coordinator) host = node.name;
  status.notes.push_back(
      text("the agent runs on ", host,
           ", so it is not visible from here whether it and its processes are alive; "
           "the run folder was last written ",
           fixed(std::max(0.0, age_s), 1), " s ago"));
  if (found.nodes.empty())
    status.notes.push_back("ranks are shown as they were when this generation began");
}

// srun or torchrun started the ranks: no agent says how they are. Rank 0 writes metrics.json when
// it ends, not when it is killed.
void RunObserver::add_logged_state(RunStatus& status) const {
  status.notes.push_back(
      "no agent watches this run, because srun or torchrun started its ranks; these values are "
      "what rank 0 logged");
  const auto contents = read_file(file_system_, folder_ / "metrics.json");
  const json totals = parse_json(contents.ok() ? contents.value() : "", /*allow_exceptions=*/false);
  const bool ended = totals.is_object() && integer_or(totals, "steps", -1) == status.step;
  const bool silent =
      status.logged_age_s < 0 ||
      status.logged_age_s > std::max(kSilentRun_s, kSilentSteps * status.step_time_s);
  status.state = ended && totals.value("finished", json()) == true ? "done"
                 : ended                                           ? "stopped"
                 : silent                                          ? "unknown"
                                                                   : "running";
}

RankStatus RunObserver::rank_status(Membership::Member member, bool running, bool here) const {
  RankStatus rank;
  // The coordinator knows the pages of its own node alone.
  rank.elsewhere = !here || (!member.node.empty() && member.progress_page.empty());
  rank.alive = running && (rank.elsewhere || launcher::is_alive(member.pid));
  rank.stopped = rank.alive && !rank.elsewhere && launcher::is_stopped(member.pid);
  if (rank.alive && !rank.elsewhere)
    if (const auto page = ProgressPage::look_at(member.progress_page); page.ok())
      member.progress = page.value()->read();
  // One agent alone publishes them when a generation begins, not while it goes on.
  const bool old = !here && member.node.empty();
  if (member.progress.unix_ns > 0 && !old)
    rank.age_s = static_cast<double>(clock_.unix_ns() - member.progress.unix_ns) * 1e-9;
  rank.member = std::move(member);
  return rank;
}

void RunObserver::add_config(const RunStatus& status) {
  // A new launch may have other flags; its run_args.json is there once a step was logged.
  const int64_t generation = status.membership.generation;
  if (config_ && config_generation_ == generation) return;
  const auto flags = run_flags(file_system_, folder_);
  if (!flags.ok()) return;
  auto parsed = parse_config("", flags.value());
  if (!parsed.ok()) return;
  config_ = std::move(parsed.value().config);
  transport_ = transport_of_run(file_system_, folder_);
  const bool steps = std::any_of(status.ranks.begin(), status.ranks.end(), [](const auto& rank) {
    return rank.member.progress.phase >= Phase::kStep;
  });
  if (steps) config_generation_ = generation;
}

void RunObserver::add_logged_steps(RunStatus& status) const {
  const std::vector<json> steps = newest_steps(file_system_, folder_ / "metrics.jsonl");
  if (steps.empty()) return;
  double tokens = 0, seconds = 0;
  for (const json& step : steps) {
    tokens += number_or(step, "tokens", 0);
    seconds += number_or(step, "step_time_s", 0);
  }
  const json& last = steps.back();
  status.step = integer_or(last, "step", -1);
  if (status.membership.state.empty()) {  // no agent knows them
    status.membership.generation = integer_or(last, "generation", 0);
    status.membership.world_size = integer_or(last, "world_size", 0);
  }
  if (const auto loss = last.find("loss"); loss != last.end() && loss->is_number())
    status.loss = loss->get<double>();
  if (seconds > 0) status.tokens_per_s = tokens / seconds;
  status.step_time_s = seconds / static_cast<double>(steps.size());
  status.logged_age_s = static_cast<double>(clock_.unix_ns()) * 1e-9 - number_or(last, "t", 0);
}

// Every rank takes part in every step; what differs is how many of its slots it computes.
void RunObserver::add_rank_rates(RunStatus& status) const {
  if (!config_ || status.tokens_per_s < 0 || status.ranks.empty()) return;
  const layout::SlotMap map =
      layout::slot_map(*config_, static_cast<int>(status.ranks.size()), node_ranks(status.ranks));
  for (RankStatus& rank : status.ranks) {
    if (rank.member.rank < 0 || rank.member.rank >= map.world_size) continue;
    const auto slots = static_cast<double>(map.slots_of(rank.member.rank).size());
    rank.tokens_per_s = status.tokens_per_s * slots / static_cast<double>(map.slots);
  }
}

void RunObserver::add_events(RunStatus& status) {
  const auto path = folder_ / "events.jsonl";
  const int64_t bytes = launcher::file_size(file_system_, path);
  if (bytes != events_bytes_) {
    events_bytes_ = bytes;
    const auto contents = read_file(file_system_, path);
    RestartCount count;
    asked_to_stop_ = failed_since_recovery_ = false;
    waiting_for_.clear();
    bool ended = false;
    std::vector<json> events = parse_events(contents.ok() ? contents.value() : "", SIZE_MAX).events;
    leave_out_refusal(events);
    for (const json& event : events) {
      const std::string name = string_or_empty(event, "event");
      count.on(name);
      if (name == "stop_requested") asked_to_stop_ = true;
      if (std::exchange(ended, ends_launch(name))) {  // the next launch begins
        failed_since_recovery_ = false;
        waiting_for_.clear();
      }
      if (name == "generation_start") {
        asked_to_stop_ = false;
        waiting_for_.clear();
      }
      if (name == "waiting_for_nodes") {
        if (waiting_for_.empty()) waits_since_s_ = number_or(event, "t", 0);
        const std::string reason = string_or_empty(event, "reason");
        if (!reason.empty() || waiting_for_.empty())
          waiting_for_ = reason.empty() ? "too few nodes have joined" : reason;
      }
      if (name == "recovered") failed_since_recovery_ = false;
      if (name == "node_lost") last_failure_ = string_or_empty(event, "reason");
      if (name == "failure_detected") last_failure_ = failure_text(event);
      if (name == "failure_detected") failed_since_recovery_ = true;
      if (name == "node_lost" || name == "failure_detected")
        last_error_ = string_or_empty(event, "error");
    }
    if (ended) waiting_for_.clear();
    restarts_ = count.restarts();
  }
  status.restarts = restarts_;
  status.last_failure = last_failure_;
  status.last_error = last_error_;
  status.failed_since_recovery = failed_since_recovery_;
  status.waiting_for = waiting_for_;
  if (!waiting_for_.empty())
    status.waiting_s = std::max(0.0, static_cast<double>(clock_.unix_ns()) * 1e-9 - waits_since_s_);
}

// A command that was refused does not change how the run is.
void RunObserver::leave_out_refusal(std::vector<json>& events) {
  refused_.clear();
  const std::vector<LaunchRecord> launches = launches_of(events);
  if (!newest_was_refused(launches)) return;
  const LaunchRecord& before = launches[launches.size() - 2];
  refused_ = launches.back().refusal();
  state_before_ = before.end.empty() ? "agent_gone" : before.end;
  status_before_ = before.exit_status;
  events.resize(events.size() - launches.back().events.size());
}

void RunObserver::add_audits(RunStatus& status) const {
  if (!config_) return;
  const auto found = checkpoint::read_suspects(file_system_, config_->checkpoint_folder());
  if (!found) status.notes.push_back(found.error().message);
  for (const auto& each : found.ok() ? found.value() : decltype(found.value()){})
    status.audits.push_back(audit_text(each));
  if (found) status.suspected = found.value();
}

void RunObserver::add_checkpoint(RunStatus& status) {
  int64_t committed = -1;
  for (const RankStatus& rank : status.ranks)
    committed = std::max(committed, rank.member.progress.committed_step);
  const bool nobody_says = status.ranks.empty();
  if ((committed != committed_step_ || status.audits.size() != audits_ || nobody_says) && config_) {
    committed_step_ = committed;
    audits_ = status.audits.size();
    checkpoint_step_ = -1;
    checkpoint_created_s_.reset();
    const auto entries = checkpoint::list_from_newest(file_system_, config_->checkpoint_folder());
    for (const auto& entry : entries.ok() ? entries.value() : decltype(entries.value()){}) {
      if (!entry.usable()) continue;
      checkpoint_step_ = entry.step;
      checkpoint_created_s_ = entry.created_s;
      break;
    }
  }
  status.checkpoint_step = checkpoint_step_;
  if (checkpoint_created_s_)
    status.checkpoint_age_s =
        static_cast<double>(clock_.unix_ns()) * 1e-9 - static_cast<double>(*checkpoint_created_s_);
}

}  // namespace lockstep::cli
