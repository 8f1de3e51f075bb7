// Finds out about this node: asks the kernel and the programs that know, and measures. Bounded in
// time and bytes; leaves nothing behind, even when it is killed.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/file_system.h"
#include "base/result.h"
#include "cli/doctor/doctor_facts.h"

namespace lockstep::cli {

struct ProbeOptions {
  std::filesystem::path checkpoint_folder;  // need not exist
  std::filesystem::path memory_folder = "/dev/shm";
  Result<std::filesystem::path> worker_program = std::filesystem::path();  // or why there is none
  int64_t threads = 1;                                                     // of a rank
  std::string local_address;                                               // launcher.local_addr
  std::string rendezvous;                                                  // launcher.rdzv_endpoint
  int64_t disk_bytes = int64_t{256} << 20;                                 // written at most
  double disk_s = 20, program_s = 60;  // limits: of the writing, of each program asked
};
// About a minute at most where disks and programs are slow, seconds otherwise. What cannot be found
// out is said in the facts; it is no error.
NodeFacts probe_node(FileSystem& file_system, Clock& clock, const ProbeOptions& options);

// The pieces that tests call on their own.
// Writes into a file without a name, then syncs it.
DiskFacts probe_disk(FileSystem& file_system, Clock& clock, const ProbeOptions& options);
NetworkFacts probe_network(const ProbeOptions& options);
// Of `nvidia-smi --query-gpu=name,memory.total,driver_version,ecc.errors.uncorrected.volatile.total
// --format=csv,noheader,nounits`. Errors: kCorrupt.
Result<std::vector<GpuFacts>> parse_nvidia_smi(std::string_view lines);
// Of what `lockstep-worker probe` prints. Errors: kCorrupt.
Result<ComputeFacts> parse_worker_probe(std::string_view json);

}  // namespace lockstep::cli
