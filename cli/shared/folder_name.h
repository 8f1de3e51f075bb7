// What a person calls a folder or a file that was named by a path.
#pragma once

#include <filesystem>
#include <string>

namespace lockstep::cli {

// The last name of a path, also of one that ends in a slash.
inline std::string folder_name(const std::filesystem::path& path) {
  const auto whole = path.lexically_normal();
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

}  // namespace lockstep::cli
