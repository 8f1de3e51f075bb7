// Which checkpoint directories may go, and removing them so that a crash at any moment leaves
// either a whole checkpoint or one without a manifest.
#pragma once

#include <filesystem>
#include <vector>

#include "base/file_system.h"
#include "base/result.h"
#include "checkpoint/record/catalog.h"

namespace lockstep::checkpoint {

struct RetentionPolicy {
  int64_t keep_latest_k = 3;  // permanent ones; >= 2; 0: all
  int64_t keep_every = 0;     // steps whose multiples stay for ever; 0: none
  double keep_minutes = 0;    // one for each that many minutes stays for ever; 0: none
  int64_t audited_step = -1;  // up to which the run is audited; -1: not at all
  bool keep_best = false;     // the one with the lowest validation loss stays
};

// Pure decisions over a catalog, by an engine of `generation`. What belongs to a later generation
// is never touched: this process may be the one that was given up.
//
// What a commit makes superfluous: all but
// - the permanent ones committed last (generation, then step: after a fall back the new line
//   counts, not the damaged steps ahead of it; suspect ones do not count), and what is newer than
//   the oldest of those;
// - those that stay for ever: multiples of keep_every, and from the oldest on the next one that is
//   keep_minutes younger by the manifests' times. A step that a later generation passed again does
//   not count; a damaged manifest, whose time nobody knows, stays;
// - the newest ephemeral one while nothing newer is committed, or while it is one of the last two;
// - the newest usable one that is audited whole: what a run goes back to when a device errs;
// - with keep_best, the best one.
std::vector<std::filesystem::path> superfluous(std::vector<CatalogEntry> entries,
                                               const RetentionPolicy& policy, int64_t generation);
// The usable one with the lowest validation loss, of several with the same the first; null: none
// was validated. A step that a later generation passed again does not count.
const CatalogEntry* best_of(const std::vector<CatalogEntry>& entries);
// Attempts of earlier generations that never got a manifest. One whose manifest is damaged, or was
// lost, stays: a person can mend it.
std::vector<std::filesystem::path> orphans(const std::vector<CatalogEntry>& entries,
                                           int64_t generation);

// 1. the index and the manifest; 2. fsync of the directory; 3. the files; 4. the directory. Missing
// is fine.
// Nothing is removed through a symbolic link: of one that is named like a checkpoint, or stands in
// one, the link goes.
// Errors: kIo.
Result<void> remove_checkpoint(FileSystem& file_system, const std::filesystem::path& directory);
// Removes what is superfluous in the catalog's folder; one that cannot be removed does not keep the
// others. Returns what is gone. Errors: kIo, the first one.
Result<std::vector<std::filesystem::path>> prune(FileSystem& file_system, Catalog& catalog,
                                                 const RetentionPolicy& policy, int64_t generation);

}  // namespace lockstep::checkpoint
