// The config that a run was started with, read back from its folder.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "base/result.h"

namespace lockstep::cli {

// The resolved config of run_args.json in `run` as the flags that give it, reading from `run`
// whatever folder it was made in. Errors: kNotFound, kCorrupt.
Result<std::vector<std::string>> run_flags(FileSystem& file_system,
                                           const std::filesystem::path& run);

// Where that run's data lies: data.path of its config, or the first of data.sources. Errors: the
// same.
Result<std::filesystem::path> data_path_of_run(FileSystem& file_system,
                                               const std::filesystem::path& run);

// How its ranks exchange tensors: "memory", "gloo", "staged", "nccl", "none" (one rank); "" where
// the folder does not say it.
std::string transport_of_run(FileSystem& file_system, const std::filesystem::path& run);

// The lines of its identity, as it was last started; none where the folder does not say it.
std::vector<std::string> identity_of_run(FileSystem& file_system, const std::filesystem::path& run);
// The names of its units, in the order of the digests of its steps; likewise.
std::vector<std::string> trained_units_of_run(FileSystem& file_system,
                                              const std::filesystem::path& run);

// Has it made all its steps, or was stopped early by its validations? (metrics.json.)
bool run_has_finished(FileSystem& file_system, const std::filesystem::path& run);

}  // namespace lockstep::cli
