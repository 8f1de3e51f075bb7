#include "launcher/agent.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "launcher/console_tail.h"
#include "launcher/process.h"
#include "launcher/run_files.h"

namespace lockstep::launcher {
namespace {

constexpr int64_t kCulpritNs =
    200'000'000;                 // a dead worker is reaped this soon after its sockets close
constexpr size_t kLogLines = 8;  // of a failed worker, in the table
constexpr int64_t kStateLookNs = 500'000'000;  // how often /proc is asked who is stopped
constexpr int kDrainTries = 50;                // a console may not take rank 0's last lines at once

struct Worker {
  WorkerProcess process;
  pid_t pid;
  std::filesystem::path page_path;
  std::unique_ptr<ProgressPage> page;
  std::filesystem::path log;
  int64_t log_start;  // where this generation's lines begin
  bool stopped = false;
};

class Agent {
 public:
  Agent(FileSystem& file_system, Clock& clock, const AgentOptions& options,
        std::filesystem::path scratch, EventLog events, ConsoleTail console)
      : file_system_(file_system),
        clock_(clock),
        options_(options),
        scratch_(std::move(scratch)),
        events_(std::move(events)),
        console_(std::move(console)),
        supervisor_(options.supervisor) {}

  int run();

 private:
  void feed(const Event& event);
  void carry_out(const SpawnAll& action);
  void carry_out(const Signal& action) { worker(action.rank).process.signal(action.signal); }
  void carry_out(const KillAll&);
  void carry_out(const Record& action);
  void carry_out(const Finish& action);

  Result<void> spawn_generation(const SpawnAll& action);
  Result<Worker> spawn_worker(const SpawnAll& action, int64_t rank,
                              const std::filesystem::path& folder, const std::string& nonce);
  void wait();
  void collect_exits(int64_t alive_ns);
  void reap_into(WorkersExited& event);
  Tick look();
  void publish(const std::string& state, int exit_status);
  void drain_console();
  Worker& worker(int rank) { return workers_[static_cast<size_t>(rank)]; }

  FileSystem& file_system_;
  Clock& clock_;
  const AgentOptions& options_;
  const std::filesystem::path scratch_;
  EventLog events_;
  ConsoleTail console_;
  StopSignals signals_;
  Supervisor supervisor_;
  std::vector<Worker> workers_;
  int64_t state_looked_ns_ = 0;
  bool finished_ = false;
  int exit_status_ = kExitBug;
};

int Agent::run() {
  feed(Begin{});
  while (!finished_) {
    const int64_t alive_ns = clock_.monotonic_ns();
    wait();
    collect_exits(alive_ns);
    for (const int signal : signals_.take()) feed(StopRequested{signal});
    console_.pump();
    if (!finished_) feed(look());
  }
  return exit_status_;
}

// Started and SpawnFailed answer SpawnAll, so events queue up behind the one being carried out.
void Agent::feed(const Event& event) {
  for (const Action& action : supervisor_.on(event, clock_.monotonic_ns()))
    std::visit([this](const auto& a) { carry_out(a); }, action);
}

void Agent::carry_out(const SpawnAll& action) {
  const auto spawned = spawn_generation(action);
  if (spawned) {
    feed(Started{});
    publish("running", -1);
  } else {
    workers_.clear();
    feed(SpawnFailed{spawned.error().message});
  }
}

Result<void> Agent::spawn_generation(const SpawnAll& action) {
  workers_.clear();
  if (action.generation > 0) {
    const auto old = remove_tree(file_system_, scratch_ / text("g", action.generation - 1));
    if (!old) log_warning(old.error().message);
  }
  const auto folder = scratch_ / text("g", action.generation);
  LOCKSTEP_RETURN_IF_ERROR(file_system_.make_directories(folder));
  const std::string nonce =
      nonce_of(static_cast<uint64_t>(clock_.unix_ns()), static_cast<uint64_t>(::getpid()),
               static_cast<uint64_t>(action.generation));
  for (int64_t rank = 0; rank < action.world_size; ++rank) {
    auto spawned = spawn_worker(action, rank, folder, nonce);
    if (!spawned) return spawned.error();
    workers_.push_back(std::move(spawned).value());
  }
  return {};
}

Result<Worker> Agent::spawn_worker(const SpawnAll& action, int64_t rank,
                                   const std::filesystem::path& folder, const std::string& nonce) {
  WorkerPlace place;
  place.rank = place.local_rank = rank;
  place.world_size = place.local_world_size = action.world_size;
  place.generation = action.generation;
  place.nonce = nonce;
  place.store = text("file:", (folder / "store").string());
  place.progress_page = folder / text("page_", rank);
  place.threads = options_.threads;
  LOCKSTEP_TRY(auto page, ProgressPage::open(place.progress_page));
  const auto log = log_path(options_.dump_folder, rank);
  const int64_t log_start = file_size(file_system_, log);
  LOCKSTEP_TRY(
      auto process,
      WorkerProcess::spawn({.program = options_.worker_program,
                            .arguments = options_.worker_arguments,
                            .environment = worker_variables(options_.environment, place),
                            .stderr_path = log,
                            .stdout_path = rank == 0 ? log.parent_path() / "console.log" : log}));
  const pid_t pid = process.pid();
  return Worker{std::move(process), pid, place.progress_page, std::move(page), log, log_start};
}

void Agent::carry_out(const KillAll&) {
  for (Worker& worker : workers_) worker.process.kill_all();
}

void Agent::carry_out(const Record& action) {
  LoggedEvent event;
  event.event = action.event;
  event.generation = action.generation;
  event.world_size = action.world_size;
  event.rank = action.rank;
  event.step = action.step;
  event.reason = action.reason;
  if (action.rank >= 0) event.pid = worker(action.rank).pid;
  if (action.event == "spawned")
    for (const Worker& worker : workers_) event.pids.push_back(worker.pid);
  events_.append(event);

  const std::string generation = text("generation ", action.generation);
  if (action.event == "failure_detected") {
    log_error(generation, ": rank ", action.rank, " ", action.reason, " at step ", action.step,
              "; stopping the others");
  } else if (action.event == "generation_start") {
    log_info(generation, ": ", action.reason);
  } else if (action.event == "recovered") {
    log_info(generation, ": recovered: ", action.reason);
  } else if (action.event == "stop_requested") {
    log_info(action.reason, ": workers save and stop");
  } else if (action.event == "grace_over") {
    log_warning(generation, ": ", action.reason);
  }
}

void Agent::carry_out(const Finish& action) {
  finished_ = true;
  exit_status_ = action.exit_status;
  LoggedEvent event;
  event.event = state_name(supervisor_.state());
  event.generation = supervisor_.generation();
  event.world_size = supervisor_.world_size();
  event.exit_status = action.exit_status;
  event.reason = action.reason;
  events_.append(event);
  drain_console();
  publish(state_name(supervisor_.state()), exit_status_);
  const std::string table = incident_table(supervisor_.incidents());
  if (!table.empty()) log_info("what failed, and what it cost\n", table);
  if (exit_status_ == kExitDone) return;
  log_error("ended with status ", exit_status_, ": ", action.reason);
  if (exit_status_ != kExitConfig && !options_.resume_command.empty())
    log_info("to resume from the newest checkpoint: ", options_.resume_command);
}

void Agent::wait() {
  std::vector<int> descriptors{signals_.descriptor()};
  for (const Worker& worker : workers_)
    if (!worker.process.reaped()) descriptors.push_back(worker.process.pidfd());
  wait_readable(descriptors, options_.tick_ms);
}

// All deaths of one look go into one event: which came first is decided by what they say. A worker
// whose sockets are closed is not always reaped before those that noticed: they are believed only
// when nobody else has died a moment later.
void Agent::collect_exits(int64_t alive_ns) {
  WorkersExited event;
  event.alive_ns = alive_ns;
  reap_into(event);
  const int64_t deadline_ns = clock_.monotonic_ns() + kCulpritNs;
  const auto lost_a_peer = [](const WorkerExit& exit) { return exit.exit_code == kExitPeerLost; };
  while (!event.exits.empty() && event.exits.size() < workers_.size() &&
         std::all_of(event.exits.begin(), event.exits.end(), lost_a_peer) &&
         clock_.monotonic_ns() < deadline_ns) {
    wait();
    reap_into(event);
  }
  if (!event.exits.empty()) feed(event);
}

void Agent::reap_into(WorkersExited& event) {
  std::vector<pid_t> own;
  for (size_t rank = 0; rank < workers_.size(); ++rank) {
    Worker& worker = workers_[rank];
    if (worker.process.reaped()) continue;
    const auto status = worker.process.try_reap();
    if (!status) {
      own.push_back(worker.pid);
      continue;
    }
    WorkerExit exit;
    exit.rank = static_cast<int>(rank);
    exit.exit_code = status->exit_code;
    exit.signal = status->signal;
    exit.progress = worker.page->read();
    if (exit.failed())
      exit.log_lines = last_lines(file_system_, worker.log, worker.log_start, kLogLines);
    event.exits.push_back(std::move(exit));
  }
  reap_strangers(own);
}

Tick Agent::look() {
  const int64_t now_ns = clock_.monotonic_ns();
  const bool look_at_state = now_ns - state_looked_ns_ >= kStateLookNs;
  if (look_at_state) state_looked_ns_ = now_ns;
  Tick tick;
  for (Worker& worker : workers_) {
    if (look_at_state) worker.stopped = worker.process.stopped();
    tick.samples.push_back({worker.page->read(), worker.stopped});
  }
  return tick;
}

void Agent::publish(const std::string& state, int exit_status) {
  Membership membership;
  membership.generation = supervisor_.generation();
  membership.world_size = supervisor_.world_size();
  membership.agent_pid = ::getpid();
  membership.state = state;
  membership.exit_status = exit_status;
  for (const Worker& worker : workers_)
    membership.workers.push_back({static_cast<int>(membership.workers.size()), worker.pid,
                                  worker.page_path, worker.page->read()});
  const auto published =
      publish_membership(file_system_, options_.dump_folder / "workers.json", membership);
  if (!published) log_warning("workers.json: ", published.error().message);
}

void Agent::drain_console() {
  constexpr int64_t kPauseNs = 20'000'000;
  for (int i = 0; i < kDrainTries && !console_.pump(); ++i) clock_.sleep_ns(kPauseNs);
}

// Two agents in one folder would write the same logs and checkpoints.
Result<void> nobody_else_runs(FileSystem& file_system, const std::filesystem::path& dump_folder) {
  const auto last = read_membership(file_system, dump_folder / "workers.json");
  if (!last || last.value().state != "running") return {};
  const pid_t agent = last.value().agent_pid;
  if (agent == ::getpid() || !runs_same_program(agent)) return {};
  return Error{Code::kConfig, text(dump_folder.string(), " is being trained by process ", agent,
                                   " already (lockstep status); give this run another folder with "
                                   "--job.dump_folder")};
}

}  // namespace

std::filesystem::path log_path(const std::filesystem::path& dump_folder, int64_t rank) {
  constexpr size_t kDigits = 5;
  const std::string digits = std::to_string(rank);
  const std::string zeros(kDigits - std::min(kDigits, digits.size()), '0');
  return dump_folder / "logs" / text("rank_", zeros, digits, ".log");
}

int run_agent(FileSystem& file_system, Clock& clock, const AgentOptions& options) {
  const auto fail = [](const Error& error) {
    log_error(error.message);
    return exit_status(error.code);
  };
  const auto logs = options.dump_folder / "logs";
  if (const auto made = file_system.make_directories(logs); !made) return fail(made.error());
  if (const auto free = nobody_else_runs(file_system, options.dump_folder); !free)
    return fail(free.error());
  auto events = EventLog::open(file_system, clock, options.dump_folder / "events.jsonl");
  if (!events) return fail(events.error());
  auto console =
      ConsoleTail::create(file_system, logs / "console.log", log_path(options.dump_folder, 0));
  if (!console) return fail(console.error());
  auto scratch = make_private_directory();
  if (!scratch) return fail(scratch.error());
  become_subreaper();
  const int status = Agent(file_system, clock, options, *scratch, std::move(events).value(),
                           std::move(console).value())
                         .run();
  if (const auto removed = remove_tree(file_system, *scratch); !removed)
    log_warning(removed.error().message);
  return status;
}

}  // namespace lockstep::launcher
