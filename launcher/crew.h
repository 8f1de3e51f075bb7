// This node's workers of one generation: their processes, progress pages and log files.
// Owns the processes: destruction kills and reaps them. Borrows the file system, the clock and the
// options. Thread: one, which must live as long as the workers shall (process.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "launcher/agent.h"
#include "launcher/process.h"

namespace lockstep::launcher {

class Crew {
 public:
  struct Place {
    int64_t generation = 0, first_rank = 0, count = 1, world_size = 1;
    std::string nonce;
    std::string store;         // empty: a file of this generation, when no other node takes part
    std::string bind_address = "", bind_interface = "";  // empty: the workers choose
  };
  // Everything of a generation that is not for people lies in `scratch`, a private folder.
  Crew(FileSystem& file_system, const AgentOptions& options, std::filesystem::path scratch)
      : file_system_(file_system), options_(options), scratch_(std::move(scratch)) {}

  // Starts the workers of a generation; those of the one before have all been reaped. On failure
  // none is left. Errors: kIo, kNotFound.
  Result<void> start(const Place& place);
  void terminate();  // SIGTERM to each
  void kill();       // SIGKILL to each, with its children

  // Those that have ended since the last call, by rank of the job.
  std::vector<WorkerExit> reap();
  // Their pages, by local rank.
  Tick look(int64_t now_ns);

  size_t size() const { return workers_.size(); }
  std::vector<int> pidfds() const;  // of those that live
  std::vector<int32_t> pids() const;
  std::filesystem::path page_of(int64_t rank) const;  // empty: not one of ours

 private:
  struct Worker {
    WorkerProcess process;
    pid_t pid;
    std::filesystem::path page_path;
    std::unique_ptr<ProgressPage> page;
    std::filesystem::path log;
    int64_t log_start;  // where this generation's lines begin
    bool stopped = false;
  };
  Result<void> start_all(const Place& place);
  Result<Worker> start_worker(const Place& place, int64_t local_rank,
                              const std::filesystem::path& folder);

  FileSystem& file_system_;
  const AgentOptions& options_;
  const std::filesystem::path scratch_;
  std::filesystem::path folder_;  // of the generation
  std::vector<Worker> workers_;
  int64_t first_rank_ = 0, state_looked_ns_ = 0;
};

}  // namespace lockstep::launcher
