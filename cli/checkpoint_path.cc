#include "cli/checkpoint_path.h"

#include "base/text.h"
#include "checkpoint/catalog.h"

namespace lockstep::cli {

using Path = std::filesystem::path;

Path checkpoint_folder_of(FileSystem& file_system, const Path& given) {
  return file_system.exists(given / "checkpoints") ? given / "checkpoints" : given;
}

Result<Path> checkpoint_of(FileSystem& file_system, const Path& given) {
  const Path trimmed = given.has_filename() ? given : given.parent_path();
  if (trimmed.filename().string().rfind("step_", 0) == 0) return trimmed;
  const Path folder = checkpoint_folder_of(file_system, trimmed);
  LOCKSTEP_TRY(const auto entries, checkpoint::list_checkpoints(file_system, folder));
  for (const checkpoint::CatalogEntry& entry : entries)
    if (entry.committed) return entry.directory;
  return Error{Code::kNotFound, text(folder.string(), ": no committed checkpoint among ",
                                     entries.size(), " directories")};
}

}  // namespace lockstep::cli
