#include "cli/shared/version.h"

#include <string_view>

namespace lockstep::cli {

bool built_for_gpus() { return std::string_view(kBuild).ends_with(" with CUDA"); }

std::string version_line(const char* program) {
  return std::string(program) + " " + kVersion + ", " + kBuild;
}

}  // namespace lockstep::cli
