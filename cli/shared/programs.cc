#include "cli/shared/programs.h"

#include <cstdlib>

#include "base/file_system.h"
#include "base/text.h"
#include "launcher/host/process.h"

namespace lockstep::cli {

Result<std::filesystem::path> worker_program() {
  const char* const given = std::getenv("LOCKSTEP_WORKER");
  const char* const reason = std::getenv("LOCKSTEP_NO_WORKER");
  if (given == nullptr && reason != nullptr) return Error{Code::kConfig, reason};
  const std::filesystem::path worker =
      given != nullptr ? std::filesystem::path(given)
                       : launcher::running_executable().parent_path() / "lockstep-worker";
  if (!posix_file_system().exists(worker))
    return Error{Code::kConfig, text("no ", worker.string(),
                                     given != nullptr ? ", which LOCKSTEP_WORKER names"
                                                      : ": this build has no Torch parts")};
  return worker;
}

std::filesystem::path entry_program() {
  const char* const entry = std::getenv("LOCKSTEP_ENTRY");
  return entry != nullptr ? std::filesystem::path(entry) : launcher::running_executable();
}

}  // namespace lockstep::cli
