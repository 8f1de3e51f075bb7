#include "checkpoint/retention.h"

#include <algorithm>
#include <tuple>

namespace lockstep::checkpoint {

std::vector<std::filesystem::path> superfluous(std::vector<CatalogEntry> entries,
                                               int64_t keep_latest_k, int64_t generation) {
  std::vector<std::filesystem::path> paths;
  if (keep_latest_k == 0) return paths;
  std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return std::tie(a.generation, a.step) > std::tie(b.generation, b.step);
  });
  int64_t kept = 0;
  for (const CatalogEntry& entry : entries) {
    if (kept >= keep_latest_k && entry.generation <= generation) paths.push_back(entry.directory);
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
