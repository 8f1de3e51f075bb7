#include "cli/shared/file_end.h"

#include <algorithm>

namespace lockstep::cli {

std::string end_of_file(FileSystem& file_system, const std::filesystem::path& path,
                        int64_t most_bytes) {
  const auto file = file_system.open(path);
  if (!file) return "";
  const auto size = file.value()->size_bytes();
  if (!size) return "";
  const int64_t bytes = std::min(size.value(), most_bytes);
  std::string contents(static_cast<size_t>(bytes), '\0');
  const auto read =
      file.value()->read_at(std::as_writable_bytes(std::span(contents)), size.value() - bytes);
  return read ? contents : "";
}

}  // namespace lockstep::cli
