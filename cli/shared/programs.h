// Which files Lockstep's programs are. A build has both in one folder. A wheel (packaging/wheel)
// has workers for each LibTorch, for CPUs and for GPUs; its script starts `lockstep`, and says by
// variables what it chose.
#pragma once

#include <filesystem>

#include "base/result.h"

namespace lockstep::cli {

// The lockstep-worker to start: LOCKSTEP_WORKER, else the one beside this program. Errors: kConfig:
// there is none; LOCKSTEP_NO_WORKER, where it is set, is the reason.
Result<std::filesystem::path> worker_program();

// The one to start on nodes with GPUs, which this one may not be: LOCKSTEP_GPU_WORKER, a wheel's
// for GPUs, else worker_program(), with its errors.
Result<std::filesystem::path> worker_of_gpu_nodes();

// `worker` computes on GPUs, as its --version says; a job that has GPUs would leave them idle
// otherwise. Errors: kConfig: it does not, or it does not start.
Result<void> require_gpu_worker(const std::filesystem::path& worker);

// What a person or a batch script runs to come here again: LOCKSTEP_ENTRY, else this program.
std::filesystem::path entry_program();

}  // namespace lockstep::cli
