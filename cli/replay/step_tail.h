// The steps that a run logs, read on while it still trains.
#pragma once

#include <cstdint>
#include <filesystem>
#include <utility>

#include "base/file_system.h"
#include "base/result.h"
#include "cli/replay/replay_difference.h"

namespace lockstep::cli {

class StepTail {
 public:
  // `file`: a metrics.jsonl, which need not be there yet. Borrows the file system.
  StepTail(FileSystem& file_system, std::filesystem::path file)
      : file_system_(file_system), file_(std::move(file)) {}

  // Takes what was logged since the last call; a line without its end is still being written.
  // Errors: kIo; kConfig, naming the file, where that is not a training log.
  Result<void> read();
  // The last line of a step counts.
  const Steps& steps() const { return steps_; }
  int64_t last_step() const { return last_step_; }  // the highest; 0: none was logged
  // Steps up to this one are not asked for again.
  void forget(int64_t up_to_step) { steps_.erase(steps_.begin(), steps_.upper_bound(up_to_step)); }

 private:
  FileSystem& file_system_;
  const std::filesystem::path file_;
  int64_t read_bytes_ = 0;
  Steps steps_;
  int64_t last_step_ = 0;
};

}  // namespace lockstep::cli
