#include "checkpoint/retention.h"

namespace lockstep::checkpoint {

std::vector<std::filesystem::path> superfluous(const std::vector<CatalogEntry>& entries,
                                               int64_t keep_latest_k) {
  std::vector<std::filesystem::path> paths;
  int64_t kept = 0;
  for (const CatalogEntry& entry : entries) {
    if (keep_latest_k > 0 && kept == keep_latest_k) paths.push_back(entry.directory);
    else if (entry.committed) ++kept;
  }
  return paths;
}

std::vector<std::filesystem::path> orphans(const std::vector<CatalogEntry>& entries,
                                           int64_t generation) {
  std::vector<std::filesystem::path> paths;
  for (const CatalogEntry& entry : entries)
    if (!entry.has_manifest && entry.generation < generation) paths.push_back(entry.directory);
  return paths;
}

Result<void> remove_checkpoint(FileSystem& file_system, const std::filesystem::path& directory) {
  const std::filesystem::path manifest = directory / kManifestName;
  if (file_system.exists(manifest)) {
    LOCKSTEP_RETURN_IF_ERROR(file_system.remove(manifest));
    LOCKSTEP_RETURN_IF_ERROR(file_system.sync_directory(directory));
  }
  return remove_tree(file_system, directory);
}

}  // namespace lockstep::checkpoint
