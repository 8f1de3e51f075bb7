// What `lockstep doctor` finds out about a node, and what a run will need of it: plain values, so
// that the verdicts can be tested with any node one can think of. A number nobody knows is -1.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::cli {

struct GpuFacts {
  std::string name, driver;
  int64_t memory_bytes = -1;
  int64_t ecc_errors = -1;  // uncorrected, since the driver was loaded
};
struct DeviceFacts {
  int64_t cpus = 1;   // that this process may use
  int64_t cores = 1;  // that these belong to
  int64_t cpus_of_node = 1;
  int64_t gpus_of_kernel = 0;  // in /proc/driver/nvidia/gpus
  bool has_nvidia_smi = false;
  std::string nvidia_smi_error;  // why it says nothing; "": it does
  std::vector<GpuFacts> gpus;    // that nvidia-smi lists
};

// What lockstep-worker says of itself and of the devices that LibTorch sees.
struct ComputeFacts {
  std::string error;  // why it says nothing; "": it does
  std::string device, torch, nccl;
  int64_t cuda_devices = 0, threads = 1;
  bool cuda_build = false;
  double fp32_tflops = -1, bf16_tflops = -1;  // a square matrix product, of the slowest device
};

struct DiskFacts {
  std::string folder;  // where checkpoints will lie, or the nearest folder above it that is there
  std::string error;   // why it could not be written to; "": it could
  int64_t free_bytes = -1, written_bytes = 0;
  double write_s = -1, sync_s = -1;  // of written_bytes, past the page cache; then one fsync
  double bytes_per_s() const {
    return written_bytes > 0 ? static_cast<double>(written_bytes) / (write_s + sync_s) : -1;
  }
};

struct MemoryFacts {
  int64_t available_bytes = -1;
  double copy_bytes_per_s = -1;  // read and written, by all CPUs together
  std::string snapshot_folder;   // checkpoint.memory_folder, else /dev/shm
  int64_t snapshot_free_bytes = -1, shm_free_bytes = -1;
};

struct LimitFacts {
  // ulimit -Hn, to which a run raises its own, and -l; -1: no limit.
  int64_t open_files = -1, locked_bytes = -1;
  bool infiniband = false;  // such a device is there
};

// Where the other nodes will reach this one, as an agent chooses it.
struct NetworkFacts {
  std::string error;  // why there is no such address; "": there is
  std::string interface, address;
  int64_t port = 0;  // while nodes meet: where the others measure the way to here
};

struct VersionFacts {
  std::string lockstep, kernel, glibc, hdf5;
};

struct NodeFacts {
  std::string node;
  DeviceFacts devices;
  ComputeFacts compute;
  DiskFacts disk;
  MemoryFacts memory;
  LimitFacts limits;
  NetworkFacts network;
  VersionFacts versions;
  bool clock_synchronized = true;  // the kernel's word
};

// What the config asks of one node; 0: nothing, or no config was given.
struct NodeNeeds {
  int64_t ranks = 0;             // on this node
  int64_t checkpoint_bytes = 0;  // of all checkpoints that are kept and the one being written
  std::string checkpoint_how;    // "4 x 1.20 GiB"
  int64_t snapshot_bytes = 0;    // checkpoint.memory_interval: of all ranks here
  int64_t host_bytes = 0;        // of all ranks here, snapshots left out
  int64_t device_bytes = 0;      // of one rank's tensors, where it has a GPU of its own
};

// The way from one node to another.
struct PairFacts {
  int64_t to = 0;     // a rank
  std::string error;  // why it is not reached; "": it is
  double round_trip_s = -1, bytes_per_s = -1;
};

}  // namespace lockstep::cli
