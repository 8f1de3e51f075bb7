// A node of a GPU cluster on which `lockstep doctor` finds nothing wrong.
#pragma once

#include "cli/doctor/doctor_facts.h"

namespace lockstep::cli {

inline constexpr int64_t kGiB = int64_t{1} << 30;

inline GpuFacts gpu() { return {"NVIDIA H100", "580.65", 80 * kGiB, 0}; }

// A node with two GPUs on which nothing is wrong.
inline NodeFacts healthy() {
  NodeFacts f;
  f.node = "gpu001";
  f.devices = {16, 8, 64, 2, true, "", {gpu(), gpu()}};
  f.compute = {"", "x", "2.11.0", "2.27.5", 2, 1, true, 50, 700};
  f.disk = {"/scratch", "", 1000 * kGiB, kGiB / 4, 0.2, 0.1};
  f.memory = {.available_bytes = 400 * kGiB,
              .copy_bytes_per_s = 100e9,
              .snapshot_folder = "/dev/shm",
              .snapshot_free_bytes = 200 * kGiB,
              .shm_free_bytes = 200 * kGiB};
  f.limits = {.open_files = 65536, .locked_bytes = -1};
  f.network = {"", "eth0", "10.0.0.1"};
  f.versions = {"0.1.0", "6.1", "2.36", "1.10.8"};
  return f;
}

}  // namespace lockstep::cli
