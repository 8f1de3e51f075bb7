#include "launcher/agent/worker_processes.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "base/check.h"
#include "base/host_memory.h"
#include "base/log.h"
#include "base/text.h"
#include "launcher/host/run_files.h"

namespace lockstep::launcher {
namespace {

constexpr size_t kLogLines = 8;  // of a failed worker, in the table
constexpr size_t kLinesLookedAt = 64;
constexpr int64_t kStateLookNs = 500'000'000;  // how often /proc is asked who is stopped

// What a worker said last, without its figures of memory (core/train/memory_line.h): they are for
// programs.
std::vector<std::string> last_words(LogFiles& logs, const LogPlace& log) {
  auto lines = logs.last_lines(log, kLinesLookedAt);
  std::erase_if(lines,
                [](const std::string& line) { return line.find(": memory {") != line.npos; });
  if (lines.size() > kLogLines) lines.erase(lines.begin(), lines.end() - kLogLines);
  return lines;
}

}  // namespace

// [P2]
Result<void> WorkerProcesses::start(WorkerOrders first) {
  LOCKSTEP_CHECK(first.generation > generation_, "generation ", first.generation, " after ",
                 generation_);
  LOCKSTEP_CHECK(first.rank >= 0 && first.local_world_size >= 1 &&
                     first.rank <= first.world_size - first.local_world_size,
                 first.local_world_size, " workers from rank ", first.rank, " on, of ",
                 first.world_size);
  for (const Worker& worker : workers_)
    LOCKSTEP_CHECK(worker.state != State::kRuns, "worker ", worker.pid, " of generation ",
                   generation_, " lives, and generation ", first.generation, " starts");
  generation_ = first.generation;
  first_rank_ = first.rank;
  halt_by_ns_ = 0;
  ended_for_memory_ = processes_ended_for_memory(options_.kernel_root);
  readied_.clear();
  first.serves = Serves::kMany;
  auto started = start_all(first);
  if (!started) workers_.clear();
  LOCKSTEP_CHECK(!started || std::ssize(workers_) == first.local_world_size, workers_.size(),
                 " of ", first.local_world_size, " workers run");
  return started;
}

Result<void> WorkerProcesses::start_all(const WorkerOrders& first) {
  if (!folder_.empty()) {
    const auto old = remove_tree(file_system_, folder_);
    if (!old) log_warning(old.error().message);
  }
  folder_ = scratch_ / text("g", first.generation);
  LOCKSTEP_RETURN_IF_ERROR(file_system_.make_directories(folder_));
  std::vector<Worker> parked = take_parked(first.local_world_size);
  if (!parked.empty())
    log_info("generation ", first.generation, ": ", parked.size(), " of ", first.local_world_size,
             " worker processes of this node stay alive and rejoin");
  auto next = parked.begin();
  // Those that go on keep their slots; new ones take the lowest that are free.
  for (int slot = 0; std::ssize(workers_) < first.local_world_size; ++slot) {
    const auto local = static_cast<int>(workers_.size());
    const bool taken = next != parked.end() && next->slot == slot;
    if (!taken && first.local_world_size - local <= parked.end() - next) continue;
    WorkerOrders orders = first;
    orders.rank += local;
    orders.local_rank = slot;
    if (orders.store.empty()) orders.store = text("file:", (folder_ / "store").string());
    if (taken) {
      LOCKSTEP_RETURN_IF_ERROR(next_turn(*next, orders));
      workers_.push_back(std::move(*next++));
    } else {
      LOCKSTEP_TRY(Worker started, replace(orders));
      workers_.push_back(std::move(started));
    }
  }
  return {};
}

// At most `count` parked processes, by slot. The others end here.
std::vector<WorkerProcesses::Worker> WorkerProcesses::take_parked(int64_t count) {
  std::vector<Worker> parked;
  for (Worker& worker : std::exchange(workers_, {}))
    if (worker.state == State::kParked && !worker.process.reaped() && std::ssize(parked) < count)
      parked.push_back(std::move(worker));
  return parked;
}

// Rank 0's standard output has a file of its own.
WorkerProcesses::Logs WorkerProcesses::find_logs(const std::filesystem::path& log,
                                                 const Logs& now) {
  const LogPlace error = logs_.place(log, now.error);
  if (log != log_path(options_.dump_folder, 0)) return {error, error};
  return {logs_.place(log.parent_path() / "console.log", now.output), error};
}

// Gives the orders to a process that is ready, or starts a new one.
Result<WorkerProcesses::Worker> WorkerProcesses::replace(const WorkerOrders& orders) {
  std::optional<Worker> worker = take_ready(orders.local_rank);
  if (!worker) return start_process(orders);
  worker->slot = orders.local_rank;
  LOCKSTEP_RETURN_IF_ERROR(next_turn(*worker, orders));
  return std::move(*worker);
}

// One that has set up a device can take its slot alone. One that is not ready yet ends here.
std::optional<WorkerProcesses::Worker> WorkerProcesses::take_ready(int64_t slot) {
  const auto found = std::find_if(ready_.begin(), ready_.end(), [&](const Worker& worker) {
    return worker.slot == slot || !worker.page->serves_one();
  });
  if (found == ready_.end()) return std::nullopt;
  Worker worker = std::move(*found);
  ready_.erase(found);
  if (worker.process.try_reap()) return std::nullopt;
  if (worker.page->turn() == Turn::kParked) return worker;
  worker.process.kill_all();
  ending_.push_back(std::move(worker.process));
  return std::nullopt;
}

void WorkerProcesses::keep_ready(int64_t spare_for) {
  const auto runs = [](const Worker& worker) { return worker.state == State::kRuns; };
  const auto has_trained = [](const Worker& worker) { return worker.page->read().slot_us > 0; };
  const bool train = std::all_of(workers_.begin(), workers_.end(), runs) &&
                     std::any_of(workers_.begin(), workers_.end(), has_trained);
  const bool may_train = spare_for > 0 && workers_.empty();
  if (told_to_halt() || !(train || may_train)) return;
  const auto serves_one = [](const Worker& worker) { return worker.page->serves_one(); };
  const bool all_go = std::any_of(workers_.begin(), workers_.end(), serves_one) ||
                      std::any_of(ready_.begin(), ready_.end(), serves_one);
  const int64_t wanted = !all_go ? 1 : train ? std::ssize(workers_) : spare_for;
  for (int64_t slot = 0; slot < wanted; ++slot) {
    const bool there = std::any_of(ready_.begin(), ready_.end(),
                                   [&](const Worker& worker) { return worker.slot == slot; });
    if (there || !readied_.insert(slot).second) continue;
    WorkerOrders orders;
    orders.local_rank = static_cast<int>(slot);
    orders.serves = Serves::kLater;
    orders.keep_bytes = largest_memory();
    auto started = start_process(std::move(orders));
    if (!started)
      return log_warning(
          "cannot start a standby worker process, so the next recovery will be slower: ",
          started.error().message);
    ready_.push_back(std::move(started).value());
  }
}

Result<WorkerProcesses::Worker> WorkerProcesses::start_process(WorkerOrders orders) {
  orders.progress_page = scratch_ / text("page_", started_++);
  LOCKSTEP_TRY(auto page, ProgressPage::open(orders.progress_page));
  const auto log = log_path(options_.dump_folder, orders.rank);
  Logs logs = find_logs(orders.serves == Serves::kLater ? log.parent_path() / "ready.log" : log);
  LOCKSTEP_TRY(auto process,
               WorkerProcess::spawn(
                   {.program = options_.worker_program,
                    .arguments = options_.worker_arguments,
                    .environment = worker_variables(options_.environment, orders, options_.threads),
                    .stderr_path = logs.error.file,
                    .stdout_path = logs.output.file}));
  const pid_t pid = process.pid();
  Worker worker{std::move(process), pid, orders.local_rank, orders.progress_page, std::move(page)};
  worker.logs = std::move(logs);
  return worker;
}

int64_t WorkerProcesses::largest_memory() const {
  int64_t largest = 0;
  for (const Worker& worker : workers_)
    largest = std::max(largest, kernel_bytes(text("/proc/", worker.pid, "/status"), "RssAnon"));
  return largest;
}

Result<void> WorkerProcesses::next_turn(Worker& worker, WorkerOrders orders) {
  LOCKSTEP_CHECK(worker.page != nullptr && !worker.process.reaped(), "worker ", worker.pid);
  const Logs before = std::exchange(
      worker.logs, find_logs(log_path(options_.dump_folder, orders.rank), worker.logs));
  orders.progress_page = worker.page_path;
  if (worker.logs.output.file != before.output.file)
    orders.standard_output = worker.logs.output.file;
  if (worker.logs.error.file != before.error.file) orders.standard_error = worker.logs.error.file;
  LOCKSTEP_RETURN_IF_ERROR(write_orders(file_system_, worker.page_path, orders));
  worker.state = State::kRuns;
  worker.page->next_turn();
  return {};
}

void WorkerProcesses::terminate() {
  for (const Worker& worker : workers_)
    if (worker.state == State::kRuns) worker.process.signal(SIGTERM);
}

void WorkerProcesses::ask_for_change() {
  for (const Worker& worker : workers_)
    if (worker.state == State::kRuns) worker.page->ask_for_change();
}

void WorkerProcesses::halt() {
  if (halt_by_ns_ == 0) halt_by_ns_ = clock_.monotonic_ns() + kHaltNs;
  for (Worker& worker : workers_) {
    if (worker.state != State::kRuns) continue;
    worker.page->ask_to_halt();
    if (worker.process.stopped()) kill(worker);
  }
}

void WorkerProcesses::kill(Worker& worker) {
  worker.killed = true;
  worker.process.kill_all();
}

bool WorkerProcesses::waits() const {
  return told_to_halt() && std::any_of(workers_.begin(), workers_.end(), [](const Worker& worker) {
           return worker.state == State::kRuns;
         });
}

std::vector<WorkerExit> WorkerProcesses::reap() {
  logs_.follow();
  std::vector<WorkerExit> exits;
  std::vector<pid_t> own;
  for (size_t i = 0; i < workers_.size(); ++i) {
    Worker& worker = workers_[i];
    if (worker.process.reaped()) continue;
    if (auto end = end_of(worker)) {
      end->rank = static_cast<int>(first_rank_ + static_cast<int64_t>(i));
      LOCKSTEP_CHECK(worker.state != State::kRuns, "worker ", worker.pid, " has ended and runs");
      end->progress = worker.page->read();
      if (end->failed()) end->log_lines = last_words(logs_, worker.logs.error);
      exits.push_back(std::move(*end));
    }
    if (!worker.process.reaped()) own.push_back(worker.pid);
  }
  std::erase_if(ready_, [](Worker& worker) {
    if (!worker.process.try_reap()) return false;
    log_warning("the standby worker process of slot ", worker.slot, " has ended; see ",
                worker.logs.error.file.string(),
                " for the reason. The next recovery has to start a new process");
    return true;
  });
  std::erase_if(ending_, [](WorkerProcess& process) { return process.try_reap().has_value(); });
  for (const Worker& worker : ready_) own.push_back(worker.pid);
  for (const WorkerProcess& process : ending_) own.push_back(process.pid());
  reap_orphans(own);
  return exits;
}

// How the worker's part in the generation ended. It is told once.
std::optional<WorkerExit> WorkerProcesses::end_of(Worker& worker) {
  const State before = worker.state;
  WorkerExit end;
  end.agent_did = worker.killed    ? AgentDid::kKilled
                  : told_to_halt() ? AgentDid::kToldToLetGo
                                   : AgentDid::kNothing;
  if (const auto status = worker.process.try_reap()) {
    worker.state = State::kOver;
    end.exit_code = status->exit_code;
    end.signal = status->signal;
    end.no_memory = end.signal == SIGKILL && !worker.killed &&
                    processes_ended_for_memory(options_.kernel_root) > ended_for_memory_;
  } else if (worker.page->turn() == Turn::kParked) {
    worker.state = State::kParked;
    end.exit_code = worker.page->change() == Change::kDone ? kExitChanged : kExitPeerLost;
  } else if (told_to_halt() && clock_.monotonic_ns() >= halt_by_ns_) {
    if (!std::exchange(worker.was_too_slow, true))
      log_warning("worker ", worker.pid, " did not leave its generation within ",
                  kHaltNs / 1'000'000'000,
                  " s: it is killed (SIGKILL) and a new process takes its rank");
    kill(worker);
  }
  if (before != State::kRuns || worker.state == State::kRuns) return std::nullopt;
  return end;
}

control::Tick WorkerProcesses::look(int64_t now_ns) {
  const bool look_at_state = now_ns - state_looked_ns_ >= kStateLookNs;
  if (look_at_state) state_looked_ns_ = now_ns;
  control::Tick tick;
  for (Worker& worker : workers_) {
    if (look_at_state) worker.stopped = worker.process.stopped();
    tick.samples.push_back({worker.page->read(), worker.stopped});
  }
  return tick;
}

std::vector<int> WorkerProcesses::pidfds() const {
  std::vector<int> descriptors;
  for (const Worker& worker : workers_)
    if (!worker.process.reaped()) descriptors.push_back(worker.process.pidfd());
  return descriptors;
}

std::vector<int32_t> WorkerProcesses::pids() const {
  std::vector<int32_t> pids;
  for (const Worker& worker : workers_) pids.push_back(worker.pid);
  return pids;
}

const LogPlace* WorkerProcesses::console() const {
  return first_rank_ == 0 && !workers_.empty() ? &workers_.front().logs.output : nullptr;
}

std::filesystem::path WorkerProcesses::page_of(int64_t rank) const {
  const auto local = static_cast<size_t>(rank - first_rank_);
  return rank >= first_rank_ && local < workers_.size() ? workers_[local].page_path : "";
}

}  // namespace lockstep::launcher
