#include "launcher/crew.h"

#include <csignal>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "launcher/run_files.h"

namespace lockstep::launcher {
namespace {

constexpr size_t kLogLines = 8;                // of a failed worker, in the table
constexpr int64_t kStateLookNs = 500'000'000;  // how often /proc is asked who is stopped

}  // namespace

Result<void> Crew::start(const Place& place) {
  workers_.clear();
  first_rank_ = place.first_rank;
  auto started = start_all(place);
  if (!started) workers_.clear();
  return started;
}

Result<void> Crew::start_all(const Place& place) {
  if (!folder_.empty()) {
    const auto old = remove_tree(file_system_, folder_);
    if (!old) log_warning(old.error().message);
  }
  folder_ = scratch_ / text("g", place.generation);
  LOCKSTEP_RETURN_IF_ERROR(file_system_.make_directories(folder_));
  for (int64_t local_rank = 0; local_rank < place.count; ++local_rank) {
    auto started = start_worker(place, local_rank, folder_);
    if (!started) return started.error();
    workers_.push_back(std::move(started).value());
  }
  return {};
}

Result<Crew::Worker> Crew::start_worker(const Place& place, int64_t local_rank,
                                        const std::filesystem::path& folder) {
  WorkerPlace worker;
  worker.rank = place.first_rank + local_rank;
  worker.local_rank = local_rank;
  worker.world_size = place.world_size;
  worker.local_world_size = place.count;
  worker.generation = place.generation;
  worker.nonce = place.nonce;
  worker.store = place.store.empty() ? text("file:", (folder / "store").string()) : place.store;
  worker.bind_address = place.bind_address;
  worker.bind_interface = place.bind_interface;
  worker.progress_page = folder / text("page_", worker.rank);
  worker.threads = options_.threads;
  LOCKSTEP_TRY(auto page, ProgressPage::open(worker.progress_page));
  const auto log = log_path(options_.dump_folder, worker.rank);
  const int64_t log_start = file_size(file_system_, log);
  const auto console = log.parent_path() / "console.log";
  LOCKSTEP_TRY(auto process,
               WorkerProcess::spawn({.program = options_.worker_program,
                                     .arguments = options_.worker_arguments,
                                     .environment = worker_variables(options_.environment, worker),
                                     .stderr_path = log,
                                     .stdout_path = worker.rank == 0 ? console : log}));
  const pid_t pid = process.pid();
  return Worker{std::move(process), pid, worker.progress_page, std::move(page), log, log_start};
}

void Crew::terminate() {
  for (const Worker& worker : workers_)
    if (!worker.process.reaped()) worker.process.signal(SIGTERM);
}

void Crew::kill() {
  for (const Worker& worker : workers_) worker.process.kill_all();
}

std::vector<WorkerExit> Crew::reap() {
  std::vector<WorkerExit> exits;
  std::vector<pid_t> own;
  for (size_t i = 0; i < workers_.size(); ++i) {
    Worker& worker = workers_[i];
    if (worker.process.reaped()) continue;
    const auto status = worker.process.try_reap();
    if (!status) {
      own.push_back(worker.pid);
      continue;
    }
    WorkerExit exit;
    exit.rank = static_cast<int>(first_rank_ + static_cast<int64_t>(i));
    exit.exit_code = status->exit_code;
    exit.signal = status->signal;
    exit.progress = worker.page->read();
    if (exit.failed())
      exit.log_lines = last_lines(file_system_, worker.log, worker.log_start, kLogLines);
    exits.push_back(std::move(exit));
  }
  reap_strangers(own);
  return exits;
}

Tick Crew::look(int64_t now_ns) {
  const bool look_at_state = now_ns - state_looked_ns_ >= kStateLookNs;
  if (look_at_state) state_looked_ns_ = now_ns;
  Tick tick;
  for (Worker& worker : workers_) {
    if (look_at_state) worker.stopped = worker.process.stopped();
    tick.samples.push_back({worker.page->read(), worker.stopped});
  }
  return tick;
}

std::vector<int> Crew::pidfds() const {
  std::vector<int> descriptors;
  for (const Worker& worker : workers_)
    if (!worker.process.reaped()) descriptors.push_back(worker.process.pidfd());
  return descriptors;
}

std::vector<int32_t> Crew::pids() const {
  std::vector<int32_t> pids;
  for (const Worker& worker : workers_) pids.push_back(worker.pid);
  return pids;
}

std::filesystem::path Crew::page_of(int64_t rank) const {
  const auto local = static_cast<size_t>(rank - first_rank_);
  return rank >= first_rank_ && local < workers_.size() ? workers_[local].page_path : "";
}

}  // namespace lockstep::launcher
