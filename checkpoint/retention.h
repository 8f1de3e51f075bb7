// Which checkpoint directories may go, and removing them so that a crash at any moment leaves
// either a whole checkpoint or one without a manifest.
#pragma once

#include <filesystem>
#include <vector>

#include "base/file_system.h"
#include "base/result.h"
#include "checkpoint/catalog.h"

namespace lockstep::checkpoint {

// Pure decisions over a catalog (newest first).
//
// What a commit makes superfluous: all that is older than the `keep_latest_k` newest committed
// checkpoints; 0 keeps all. A damaged one does not count as kept.
std::vector<std::filesystem::path> superfluous(const std::vector<CatalogEntry>& entries,
                                               int64_t keep_latest_k);
// Attempts of generations before `generation` that never got a manifest. A damaged manifest is
// evidence, and stays.
std::vector<std::filesystem::path> orphans(const std::vector<CatalogEntry>& entries,
                                           int64_t generation);

// 1. the manifest; 2. fsync of the directory; 3. the files; 4. the directory. Errors: kIo.
Result<void> remove_checkpoint(FileSystem& file_system, const std::filesystem::path& directory);

}  // namespace lockstep::checkpoint
