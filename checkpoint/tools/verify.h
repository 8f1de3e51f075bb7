// Checks a whole checkpoint.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "base/result.h"
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

}  // namespace lockstep::checkpoint
