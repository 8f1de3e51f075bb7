// Checks a whole checkpoint.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "base/result.h"
#include "checkpoint/record/manifest_parts.h"
#include "checkpoint/tools/progress.h"

namespace lockstep::checkpoint {

struct VerifyProblem {
  std::string where, what;
};
// Re-reads every byte: file sizes, tables, hashes outside the chunks, every chunk's CRC32C,
// fletcher32 and XXH3, the fingerprints. Goes on after a problem. Errors: those of read_manifest.
Result<std::vector<VerifyProblem>> verify(FileSystem& file_system,
                                          const std::filesystem::path& directory, int threads,
                                          const Progress& progress = {});

// What one rank of many does of that. The sums of all add up to those of whole tensors, for
// check_fingerprints.
struct VerifiedShare {
  Manifest manifest;  // with the files of the share
  Fingerprints sums;
};
// Rank 0 looks at the index too. Errors: those of read_manifest; kCorrupt naming the first file
// with a problem.
Result<VerifiedShare> verify_share(FileSystem& file_system, const std::filesystem::path& directory,
                                   const FileShare& share, int threads);

}  // namespace lockstep::checkpoint
