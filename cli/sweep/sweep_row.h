// What became of one row of a sweep, as its run folder says.
//
//   config.toml      all that its run is given; none where the config is wrong
//   console.log      what `lockstep launch` printed
//   exit_status      its exit status, a line; none: it has not come to its end
//   metrics.jsonl …  what every run leaves
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "base/result.h"
#include "cli/compare/run_log.h"

namespace lockstep::cli {

struct RowOutcome {
  std::optional<int> status;
  std::string why;  // the last error that was printed, of a row that failed
  // Of a run that was done; else nothing.
  int64_t steps = 0, ranks = 0;
  std::optional<double> step_time_s;   // median, without the first step of each start
  std::optional<double> tokens_per_s;  // of all ranks, at that step time
  std::optional<double> mfu_pct;       // likewise
  std::optional<int64_t> peak_bytes;   // of the rank that took most
  std::optional<double> loss;          // of the last step

  // Nothing is found out by running it again: it was done, its memory did not suffice, or its
  // config is wrong.
  bool settled() const;
};

// "done", "out of memory", "not run", …
std::string status_words(const std::optional<int>& status);

// Errors: kIo, kCorrupt: what a run that ended well has left is not there, or damaged.
Result<RowOutcome> read_row(FileSystem& file_system, const std::filesystem::path& folder);
// Errors: kIo, kNoSpace.
Result<void> write_exit_status(FileSystem& file_system, const std::filesystem::path& folder,
                               int status);

// The figures of a run that was done. Requires: `log` has a step.
void add_figures(const RunLog& log, RowOutcome& outcome);

}  // namespace lockstep::cli
