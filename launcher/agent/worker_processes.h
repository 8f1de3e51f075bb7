// This node's workers of one generation: their processes, progress pages and log files. A process
// that lets go of its generation (worker_link/progress_page.h) is kept, and serves the next one in
// the same slot, which is its device; to the outside its worker has ended as one that lost a peer.
// Owns the processes: destruction kills and reaps them. Borrows the file system, the clock and the
// options. Thread: one, which must live as long as the workers shall (process.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/file_system.h"
#include "launcher/agent/agent_options.h"
#include "launcher/agent/log_files.h"
#include "launcher/host/process.h"
#include "worker_link/progress_page.h"
#include "worker_link/worker_orders.h"

namespace lockstep::launcher {

class WorkerProcesses {
 public:
  // Everything of a generation that is not for people lies in `scratch`, a private folder.
  WorkerProcesses(FileSystem& file_system, Clock& clock, const AgentOptions& options,
                  std::filesystem::path scratch)
      : file_system_(file_system),
        clock_(clock),
        options_(options),
        scratch_(std::move(scratch)),
        logs_(file_system, scratch_) {}

  // Starts the workers of a generation, local_world_size of them. `first`: the orders for the one
  // of the lowest rank; no store: a file of this generation, when no other node takes part.
  // Requires: those of the generation before have all been reaped, or are parked; the orders are of
  // a newer generation, and of one worker at least. On failure none is left.
  // Errors: kIo, kNotFound.
  Result<void> start(WorkerOrders first);
  void terminate();  // SIGTERM to each
  // Each shall end for a planned change, at the end of a step [P24].
  void ask_for_change();
  // Each shall let go of the generation; SIGKILL to one that cannot, or has not within kHaltNs, and
  // to its children.
  void halt();
  bool told_to_halt() const { return halt_by_ns_ > 0; }
  bool waits() const;  // for one that has been told

  // Those that have ended since the last call, by rank of the job.
  std::vector<WorkerExit> reap();
  // Their pages, by local rank.
  control::Tick look(int64_t now_ns);
  // Has a process ready for a worker that will be lost: LibTorch is loaded, it has the memory
  // that a worker has (at most core::kKeptBytes), and waits. Where processes serve one generation
  // alone all workers will be lost at once: each has a successor, which has set up its device. From
  // the workers' first step on; on a spare that has had none, of `spare_for` workers (0: this node
  // is no spare), at once.
  void keep_ready(int64_t spare_for);

  size_t size() const { return workers_.size(); }
  std::vector<int> pidfds() const;  // of the processes
  std::vector<int32_t> pids() const;
  std::filesystem::path page_of(int64_t rank) const;  // empty: not one of ours
  const LogPlace* console() const;  // of rank 0's standard output; null: not one of ours

 private:
  static constexpr int64_t kHaltNs = 1'000'000'000;
  enum class State { kRuns, kParked, kOver };
  struct Logs {  // where this generation's lines of standard output and error begin
    LogPlace output, error;
  };
  struct Worker {
    WorkerProcess process;
    pid_t pid;
    int64_t slot;
    std::filesystem::path page_path;
    std::unique_ptr<ProgressPage> page;
    State state = State::kRuns;
    Logs logs = {};
    bool stopped = false;
    bool was_too_slow = false;  // to let go
    bool killed = false;        // by us
  };
  Result<void> start_all(const WorkerOrders& first);
  std::vector<Worker> take_parked(int64_t count);
  Result<Worker> start_process(WorkerOrders orders);
  int64_t largest_memory() const;  // bytes that a worker has of its own
  Result<Worker> replace(const WorkerOrders& orders);
  std::optional<Worker> take_ready(int64_t slot);
  Result<void> next_turn(Worker& worker, WorkerOrders orders);
  std::optional<WorkerExit> end_of(Worker& worker);
  static void kill(Worker& worker);
  Logs find_logs(const std::filesystem::path& log, const Logs& now = {});

  FileSystem& file_system_;
  Clock& clock_;
  const AgentOptions& options_;
  const std::filesystem::path scratch_;
  LogFiles logs_;
  std::filesystem::path folder_;       // of the generation
  std::vector<Worker> workers_;        // by local rank
  std::vector<Worker> ready_;          // serve nobody yet; by the slot that they were started for
  std::vector<WorkerProcess> ending_;  // killed; a driver may take its time, and nobody waits
  int64_t first_rank_ = 0, state_looked_ns_ = 0, started_ = 0;
  int64_t generation_ = -1;       // of the last start
  int64_t halt_by_ns_ = 0;        // 0: nobody was told to
  int64_t ended_for_memory_ = 0;  // of the node's processes, when the generation started
  std::set<int64_t> readied_;     // slots; at most one process for each is started in a generation
};

}  // namespace lockstep::launcher
