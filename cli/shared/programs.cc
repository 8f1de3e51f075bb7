#include "cli/shared/programs.h"

#include <cstdlib>

#include "base/file_system.h"
#include "base/text.h"
#include "launcher/host/pipe.h"
#include "launcher/host/process.h"

namespace lockstep::cli {
namespace {

constexpr int64_t kVersionTimeoutMs = 120'000;  // LibTorch from a slow folder

}  // namespace

Result<std::filesystem::path> worker_program() {
  const char* const given = std::getenv("LOCKSTEP_WORKER");
  const char* const reason = std::getenv("LOCKSTEP_NO_WORKER");
  if (given == nullptr && reason != nullptr) return Error{Code::kConfig, reason};
  const std::filesystem::path worker =
      given != nullptr ? std::filesystem::path(given)
                       : launcher::running_executable().parent_path() / "lockstep-worker";
  if (!posix_file_system().exists(worker))
    return Error{Code::kConfig,
                 text("cannot find ", worker.string(),
                      given != nullptr ? ", which LOCKSTEP_WORKER names; correct or unset it"
                                       : ": this build has no Torch parts. Install or build "
                                         "lockstep-worker (docs/INSTALL.md)")};
  return worker;
}

Result<std::filesystem::path> worker_of_gpu_nodes() {
  const char* const for_gpus = std::getenv("LOCKSTEP_GPU_WORKER");
  if (for_gpus != nullptr) return std::filesystem::path(for_gpus);
  return worker_program();
}

Result<void> require_gpu_worker(const std::filesystem::path& worker) {
  const auto said = launcher::run_program(worker, {"--version"}, "", kVersionTimeoutMs);
  if (!said) return Error{Code::kConfig, said.error().message};
  std::string line = said.value().standard_output;
  if (line.ends_with('\n')) line.pop_back();
  if (said.value().exit_status != 0)
    return Error{Code::kConfig,
                 text(worker.string(), " --version ended with status ", said.value().exit_status,
                      ": it does not start on this machine")};
  if (line.ends_with(" with CUDA")) return {};
  return Error{Code::kConfig,
               text("GPUs are requested, but ", worker.string(), " computes on CPUs only (\"", line,
                    "\"). Use a lockstep that is built with CUDA (docs/CUDA.md; set LOCKSTEP to it "
                    "for batch scripts), or request no GPUs")};
}

std::filesystem::path entry_program() {
  const char* const entry = std::getenv("LOCKSTEP_ENTRY");
  return entry != nullptr ? std::filesystem::path(entry) : launcher::running_executable();
}

}  // namespace lockstep::cli
