// What the ranks of a run said of their memory, by stage of the run: the lines `memory {…}` of
// their logs (core/train/memory_stats.h), RUN/logs/rank_*.log.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_system.h"

namespace lockstep::cli {

struct StageMemory {
  std::string stage;            // "after model creation"
  int64_t allocated_bytes = 0;  // of tensors at that moment, the most of any rank
  int64_t peak_bytes = 0;       // the most of any rank since the stage before
};

struct RunMemory {
  std::vector<StageMemory> stages;        // in the order in which a rank came to them
  std::map<int64_t, int64_t> peak_bytes;  // the most of each rank, from its start on

  // Of the rank that took most; nothing where no rank said it.
  std::optional<int64_t> most_bytes() const;
};

// 0 for what no machine has.
int64_t bytes_of_gb(double gb);

// Adds what one rank's log says. Lines of other kinds, and damaged ones, are passed over.
void add_memory_lines(std::string_view log, RunMemory& memory);

// Of the run in `folder`; empty where it has no logs. What cannot be read counts as missing.
RunMemory read_run_memory(FileSystem& file_system, const std::filesystem::path& folder);

}  // namespace lockstep::cli
