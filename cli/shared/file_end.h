// The end of a file of a run that may still be written.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/file_system.h"

namespace lockstep::cli {

// The last bytes of the file, at most `most_bytes`; "" where it cannot be read.
std::string end_of_file(FileSystem& file_system, const std::filesystem::path& path,
                        int64_t most_bytes);

}  // namespace lockstep::cli
