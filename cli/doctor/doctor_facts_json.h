// The facts of a node as JSON and back: every field under its own name.
#pragma once

#include "base/json.h"
#include "cli/doctor/doctor_facts.h"

namespace lockstep::cli {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(GpuFacts, name, driver, memory_bytes, ecc_errors)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(DeviceFacts, cpus, cores, cpus_of_node, gpus_of_kernel,
                                   has_nvidia_smi, nvidia_smi_error, gpus)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ComputeFacts, error, device, torch, nccl, cuda_devices, threads,
                                   cuda_build, fp32_tflops, bf16_tflops)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(DiskFacts, folder, error, free_bytes, written_bytes, write_s,
                                   sync_s)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(MemoryFacts, available_bytes, copy_bytes_per_s, snapshot_folder,
                                   snapshot_free_bytes, shm_free_bytes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(LimitFacts, open_files, locked_bytes, infiniband)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NetworkFacts, error, interface, address, port)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(VersionFacts, lockstep, kernel, glibc, hdf5)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NodeFacts, node, devices, compute, disk, memory, limits, network,
                                   versions, clock_synchronized)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(PairFacts, to, error, round_trip_s, bytes_per_s)

}  // namespace lockstep::cli
