// Which files Lockstep's programs are. A build has both in one folder. A wheel (packaging/wheel)
// has a worker for each LibTorch; its script starts `lockstep`, and says by variables what it
// chose.
#pragma once

#include <filesystem>

#include "base/result.h"

namespace lockstep::cli {

// The lockstep-worker to start: LOCKSTEP_WORKER, else the one beside this program. Errors: kConfig:
// there is none; LOCKSTEP_NO_WORKER, where it is set, is the reason.
Result<std::filesystem::path> worker_program();

// `worker` computes on GPUs, as its --version says; a job that has GPUs would leave them idle
// otherwise. Errors: kConfig: it does not, or it does not start.
Result<void> require_gpu_worker(const std::filesystem::path& worker);

// What a person or a batch script runs to come here again: LOCKSTEP_ENTRY, else this program.
std::filesystem::path entry_program();

}  // namespace lockstep::cli
