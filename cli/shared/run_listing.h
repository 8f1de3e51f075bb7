// The runs of a folder of results: what a request may name, and nothing else.
//
// A run's folder has run_args.json or metrics.jsonl, and is not looked into further. Symbolic links
// below `root` are passed over, whether a folder or one of a run's files is one, so that nothing
// outside is shown. `root` itself may be one.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "base/result.h"

namespace lockstep::cli {

struct FoundRun {
  std::string id;  // the folder below root, "a/b"; of root itself its own name
  std::filesystem::path folder;
};

struct RunListing {
  std::vector<FoundRun> runs;  // by id
  int64_t links = 0;           // passed over
  bool cut = false;            // a limit was reached, and there may be more

  const FoundRun* find(const std::string& id) const;
};

struct ListingLimits {
  int depth = 4;  // folders below root
  size_t runs = 256;
  int64_t entries = 20'000;  // that are looked at
};

// The files of a run that the dashboard reads.
inline constexpr auto kRunFiles = std::to_array<const char*>(
    {"run_args.json", "metrics.jsonl", "metrics.json", "events.jsonl", "workers.json"});

// Errors: kNotFound, kIo: of root. What cannot be listed below it has no runs.
Result<RunListing> list_runs(FileSystem& file_system, const std::filesystem::path& root,
                             const ListingLimits& limits = {});

}  // namespace lockstep::cli
