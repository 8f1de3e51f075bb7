// The newest checkpoint of a folder that loads: what a resume does, for one process.
#pragma once

#include "base/log.h"
#include "base/text.h"
#include "checkpoint/load/loader.h"
#include "checkpoint/record/catalog.h"

namespace lockstep::checkpoint::test_support {

struct Loaded {
  std::filesystem::path directory;
  Manifest manifest;
  LoadStatistics statistics;
  int64_t fallbacks = 0;  // newer checkpoints that could not be used; each was logged
};
// Going back loudly from those that are not whole. Errors: kConfig as in load_pieces (an older one
// would not match either); kNotFound when none is left, naming each one's problem.
inline Result<Loaded> newest_valid(FileSystem& file_system, const std::filesystem::path& folder,
                                   const std::vector<LiveTarget>& targets, int threads) {
  LOCKSTEP_TRY(const auto entries, list_checkpoints(file_system, folder));
  std::string problems;
  int64_t fallbacks = 0;
  for (const CatalogEntry& entry : entries) {
    std::string problem = entry.problem;
    if (entry.committed) {
      auto manifest = read_manifest(file_system, entry.directory);
      if (manifest.ok()) {
        const auto loaded =
            load_pieces(file_system, entry.directory, manifest.value(), targets, threads);
        if (loaded.ok())
          return Loaded{entry.directory, std::move(manifest).value(), loaded.value(), fallbacks};
        if (loaded.error().code == Code::kConfig) return loaded.error();
        problem = loaded.error().message;
      } else {
        problem = manifest.error().message;
      }
    }
    problems += text("; ", entry.directory.filename().string(), ": ", problem);
    if (!entry.has_manifest && !entry.lost_manifest)
      continue;  // the rest of an attempt is nothing to fall back from
    ++fallbacks;
    log_error("cannot use checkpoint ", entry.directory.string(), ": ", problem,
              "; falling back to the one before it");
  }
  return Error{Code::kNotFound, text("no usable checkpoint in ", folder.string(), problems)};
}

}  // namespace lockstep::checkpoint::test_support
