// Which checkpoint directories may go, and removing them so that a crash at any moment leaves
// either a whole checkpoint or one without a manifest.
#pragma once

#include <filesystem>
#include <vector>

#include "base/file_system.h"
#include "base/result.h"
#include "checkpoint/catalog.h"

namespace lockstep::checkpoint {

// Pure decisions over a catalog, by an engine of `generation`. What belongs to a later generation
// is never touched: this process may be the one that was given up.
//
// What a commit makes superfluous: all but the `keep_latest_k` committed last (generation, then
// step: after a fall back the new line counts, not the damaged steps ahead of it), and all that is
// older than those. 0 keeps all.
std::vector<std::filesystem::path> superfluous(std::vector<CatalogEntry> entries,
                                               int64_t keep_latest_k, int64_t generation);
// Attempts of earlier generations that never got a manifest. A damaged manifest is evidence, and
// stays.
std::vector<std::filesystem::path> orphans(const std::vector<CatalogEntry>& entries,
                                           int64_t generation);

// 1. the manifest; 2. fsync of the directory; 3. the files; 4. the directory. Errors: kIo.
Result<void> remove_checkpoint(FileSystem& file_system, const std::filesystem::path& directory);

}  // namespace lockstep::checkpoint
