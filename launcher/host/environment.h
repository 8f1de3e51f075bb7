// Where am I, and what does a worker have to know? Pure functions over environment variables.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/environment.h"
#include "base/result.h"
#include "worker_link/worker_orders.h"

namespace lockstep::launcher {

enum class Launcher {
  kAlone,     // nobody started several of us: we start the workers ourselves
  kSlurm,     // one of several tasks of an srun step
  kTorchrun,  // RANK and WORLD_SIZE are given
};
Launcher detect_launcher(const Environment& environment);

// The orders that srun's or torchrun's variables imply. All ranks compute the same address, port,
// generation and nonce from them, without talking to each other.
// Requires: detect_launcher() is not kAlone. Errors: kConfig, naming the variable.
Result<WorkerOrders> orders_from(const Environment& environment);

// `inherited` plus the orders (worker_link/worker_orders.h), large pages for malloc
// (GLIBC_TUNABLES) where nobody chose, and the thread counts of OpenMP and MKL; without
// LOCKSTEP_SECRET, which is the agents'.
Environment worker_variables(Environment inherited, const WorkerOrders& orders, int64_t threads);

// 6 hex digits out of numbers.
std::string nonce_of(uint64_t a, uint64_t b, uint64_t c);

// Workers of one machine when nobody says how many: its GPUs (CUDA_VISIBLE_DEVICES counts) if
// workers compute on them (those of this build, or a wheel's LOCKSTEP_WORKER that is its
// LOCKSTEP_GPU_WORKER), else 1. `gpu_folder` holds one entry a GPU (Linux:
// /proc/driver/nvidia/gpus).
int64_t default_worker_count(const Environment& environment,
                             const std::filesystem::path& gpu_folder, bool built_for_gpus);

}  // namespace lockstep::launcher
