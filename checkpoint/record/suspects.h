// suspect.json beside a run's checkpoints: which of them an audit made suspect. They stay where
// they are; no resume takes them, and whoever asks for the newest checkpoint gets an older one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "base/result.h"

namespace lockstep::checkpoint {

inline constexpr const char* kSuspectsName = "suspect.json";

// An audit of step `found_at_step` named ranks that compute wrongly, or found some that contradict
// each other. What was saved since the last audit that found nothing is suspect.
struct Suspects {
  int64_t after_step = 0;  // of that last audit
  int64_t generation = 0;  // saved by this one, or by an older one
  int64_t found_at_step = 0;
  std::vector<int> ranks;
  std::vector<std::string> hosts;  // of the ranks
};

bool is_suspect(const std::vector<Suspects>& all, int64_t step, int64_t generation);
// In the order in which they were found; none where there is no such file.
// Errors: kConfig, naming the file: it is not one of ours, and a person must look; kIo.
Result<std::vector<Suspects>> read_suspects(FileSystem& file_system,
                                            const std::filesystem::path& folder);
// Errors: read_suspects' and publish_file's.
Result<void> add_suspects(FileSystem& file_system, const std::filesystem::path& folder,
                          const Suspects& found);

}  // namespace lockstep::checkpoint
