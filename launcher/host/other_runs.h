// Two runs in one folder would write the same logs and checkpoints.
#pragma once

#include <filesystem>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/file_system.h"

namespace lockstep::launcher {

// Nothing of another run than ours writes into `dump_folder`. `job`: what its nodes call ours;
// empty: it has one node, and so has the other, on this machine. Between machines the other one is
// known by workers.json, which its coordinator publishes every `publish_ns`: where that names
// another job this takes so long. Errors: kConfig.
Result<void> nobody_else_runs(FileSystem& file_system, Clock& clock,
                              const std::filesystem::path& dump_folder, const std::string& job,
                              int64_t publish_ns);

// A run folder, for a job of one node on this machine, while this lives. The kernel gives it back
// when the process ends, however it ends; programs that it starts do not inherit it.
class FolderClaim {
 public:
  // Of two that ask at the same moment one gets it. Where the file system knows no locks, both do,
  // with a warning. Requires: dump_folder/logs is there. Errors: kConfig (another process has it),
  // kIo.
  static Result<FolderClaim> take(const std::filesystem::path& dump_folder);

  FolderClaim() = default;  // of nothing
  FolderClaim(FolderClaim&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  FolderClaim& operator=(FolderClaim&& other) noexcept {
    std::swap(file_, other.file_);
    return *this;
  }
  ~FolderClaim();

 private:
  explicit FolderClaim(int file) : file_(file) {}
  int file_ = -1;  // locked
};

}  // namespace lockstep::launcher
