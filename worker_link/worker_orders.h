// All that a worker is told by who starts it: an agent, `lockstep train` under srun or torchrun, or
// torchrun itself. A new process finds it in its environment. A process that serves its next
// generation (progress_page.h) finds it in the file beside its page, NAME=VALUE and a zero each.
//
//   RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE       torchrun sets them as well
//   MASTER_ADDR MASTER_PORT                           torchrun's store, where no other is named
//   LOCKSTEP_GENERATION LOCKSTEP_NONCE
//   LOCKSTEP_STORE LOCKSTEP_STORE_SERVER              rank0 | none
//   LOCKSTEP_BIND_ADDRESS LOCKSTEP_BIND_INTERFACE
//   LOCKSTEP_PROGRESS_PAGE LOCKSTEP_TURNS             first | later; not set: Serves::kOne
//   LOCKSTEP_KEEP_BYTES LOCKSTEP_STDOUT LOCKSTEP_STDERR
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/environment.h"
#include "base/file_system.h"

namespace lockstep {
inline namespace base {

enum class Serves : uint8_t {
  kOne,    // this generation; the process ends with it
  kMany,   // this generation, and others after it: each has orders in the file beside the page
  kLater,  // no generation yet: the process waits for orders in that file
};
enum class StoreServer : uint8_t {
  kRank0,
  kOther,  // it runs already
};

struct WorkerOrders {
  int rank = 0, local_rank = 0, world_size = 1;
  int local_world_size = 0;  // 0: not known
  int64_t generation = 0;
  std::string nonce;  // 6 hex digits, the same on all ranks of a generation and on no other
  std::string store = "tcp:127.0.0.1:29500";       // or file:<path>, or agent:<path of its socket>
  StoreServer store_server = StoreServer::kRank0;  // of tcp
  // That Gloo uses, and its interface, for NCCL: the agent's choice. Empty: the worker's own.
  std::string bind_address, bind_interface;
  std::filesystem::path progress_page;  // empty: no agent watches
  Serves serves = Serves::kOne;
  int64_t keep_bytes = 0;  // of memory that a process has ready
  // Of a next generation: output is appended to these files.
  std::filesystem::path standard_output, standard_error;
  bool operator==(const WorkerOrders&) const = default;
};

// Requires: 0 <= rank < world_size; no other number is negative.
Environment encode(const WorkerOrders& orders);
// Other variables are ignored. Errors: kConfig, naming the variable.
Result<WorkerOrders> parse_worker_orders(const Environment& environment);
// What torchrun says as well: ranks, sizes and the store. Errors: kConfig, naming the variable.
Result<WorkerOrders> parse_torchrun_orders(const Environment& environment);

// Errors: kIo.
Result<void> write_orders(FileSystem& file_system, const std::filesystem::path& page,
                          const WorkerOrders& orders);
// Errors: kIo, kNotFound, kCorrupt, kConfig.
Result<WorkerOrders> read_orders(FileSystem& file_system, const std::filesystem::path& page);
// Errors: kIo.
Result<void> redirect_output(const WorkerOrders& orders);

}  // namespace base
}  // namespace lockstep
