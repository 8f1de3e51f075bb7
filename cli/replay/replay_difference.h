// What two runs' metrics.jsonl say of the same steps, to the last bit: where they part first.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "base/result.h"

namespace lockstep::cli {

// A step as it counts, the last time that it was done.
struct ReplayedStep {
  std::string loss, grad_norm;                  // hexadecimal floats
  std::vector<std::string> weights, gradients;  // digests by unit; empty: none were taken
  bool operator==(const ReplayedStep&) const = default;
};

struct ReplayedRun {
  std::vector<std::string> units;  // names, in the order of the digests
  std::map<int64_t, ReplayedStep> steps;
};

// Of a run folder. Lines that are not ours are passed over. Errors: kNotFound, kIo, kCorrupt.
Result<ReplayedRun> read_replayed(FileSystem& file_system, const std::filesystem::path& run);

// The first step in [from, to] that differs, in words for a person; nothing where all are equal.
// Errors: kConfig: one of the runs has no line for a step.
Result<std::optional<std::string>> first_difference(const ReplayedRun& logged,
                                                    const ReplayedRun& replayed, int64_t from,
                                                    int64_t to);

}  // namespace lockstep::cli
