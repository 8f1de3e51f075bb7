// Which checkpoint a person means by a path.
#pragma once

#include <filesystem>

#include "base/file_system.h"
#include "base/result.h"

namespace lockstep::cli {

// The folder of checkpoints in a run's folder, or `given` itself.
std::filesystem::path checkpoint_folder_of(FileSystem& file_system,
                                           const std::filesystem::path& given);
// `given` itself where it is a checkpoint, else the newest committed one in it. Errors: kNotFound.
Result<std::filesystem::path> checkpoint_of(FileSystem& file_system,
                                            const std::filesystem::path& given);

}  // namespace lockstep::cli
