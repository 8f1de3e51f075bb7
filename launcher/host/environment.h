// Where am I, and what does a worker have to know? Pure functions over environment variables.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "base/result.h"

namespace lockstep::launcher {

using Environment = std::map<std::string, std::string>;

enum class Launcher {
  kAlone,     // nobody started several of us: we start the workers ourselves
  kSlurm,     // one of several tasks of an srun step
  kTorchrun,  // RANK and WORLD_SIZE are given
};
Launcher detect_launcher(const Environment& environment);

// One worker's place in its generation; what worker_variables() tells it.
struct WorkerPlace {
  int64_t rank = 0, local_rank = 0, world_size = 1, local_world_size = 1;
  int64_t generation = 0;
  std::string nonce;        // 6 hex digits, the same on all ranks of a generation and on no other
  std::string store;        // file:<path> | agent:<path of its socket> | tcp:<host>:<port>
  bool hosts_store = true;  // of tcp: rank 0 serves it; false: somebody else does already
  std::string master_addr;  // empty with a file store
  int64_t master_port = 0;
  std::string bind_address;    // that Gloo uses, and its interface, for NCCL: the agent's choice
  std::string bind_interface;  // (net/endpoint.h); empty: the workers' own
  std::filesystem::path progress_page;  // empty: no agent watches
  int64_t threads = 1;
};

// The place that srun's or torchrun's variables describe. All ranks compute the same address, port,
// generation and nonce from them, without talking to each other.
// Requires: detect_launcher() is not kAlone. Errors: kConfig, naming the variable.
Result<WorkerPlace> place_from(const Environment& environment, int64_t threads);

// `inherited` plus RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT,
// LOCKSTEP_GENERATION, LOCKSTEP_NONCE, LOCKSTEP_STORE, LOCKSTEP_STORE_SERVER (none: no rank serves
// the store), LOCKSTEP_PROGRESS_PAGE, LOCKSTEP_BIND_ADDRESS, NCCL_SOCKET_IFNAME where nobody set
// it, large pages for malloc (GLIBC_TUNABLES) where nobody chose, and the thread counts of OpenMP
// and MKL; without LOCKSTEP_SECRET, which is the agents'.
Environment worker_variables(Environment inherited, const WorkerPlace& place);

// 6 hex digits out of numbers.
std::string nonce_of(uint64_t a, uint64_t b, uint64_t c);

// Workers of one machine when nobody says how many: its GPUs (CUDA_VISIBLE_DEVICES counts) in a
// build with CUDA, else 1. `gpu_folder` holds one entry a GPU (Linux: /proc/driver/nvidia/gpus).
int64_t default_worker_count(const Environment& environment,
                             const std::filesystem::path& gpu_folder);

}  // namespace lockstep::launcher
