// How often Slurm started a job in vain: <run folder>/slurm_starts.json. A job that is requeued for
// ever without a new checkpoint costs its user's share and somebody else's nodes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/file_system.h"
#include "base/result.h"

namespace lockstep::launcher::slurm {

inline constexpr int64_t kMaxStarts = 3;  // without a new committed step

struct Starts {
  std::string job;
  int64_t restart = -1;         // SLURM_RESTART_COUNT of the newest start
  int64_t count = 0;            // starts since a step was committed
  int64_t committed_step = -1;  // when the newest start was counted
  bool operator==(const Starts&) const = default;
};

// `before` and one more start. Counting the same start twice changes nothing, so every node of a
// job comes to the same number. Another job begins anew: its user has seen how the last one ended.
Starts count_start(const Starts& before, const std::string& job, int64_t restart,
                   int64_t committed_step);
bool may_start(const Starts& starts);
bool may_start_again(const Starts& starts, int64_t committed_step);

// Missing or unreadable: none yet.
Starts read_starts(FileSystem& file_system, const std::filesystem::path& run_folder);
// Errors: kIo, kNoSpace.
Result<void> write_starts(FileSystem& file_system, const std::filesystem::path& run_folder,
                          const Starts& starts);

}  // namespace lockstep::launcher::slurm
