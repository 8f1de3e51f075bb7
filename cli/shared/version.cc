#include "cli/shared/version.h"

namespace lockstep::cli {

std::string version_line(const char* program) {
  return std::string(program) + " " + kVersion + ", " + kBuild;
}

}  // namespace lockstep::cli
