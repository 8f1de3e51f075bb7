// How fast the devices of this machine multiply matrices, and which libraries do it: what
// `lockstep doctor` asks the worker.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::core {

struct DeviceProbe {
  std::string device;       // device_identity()
  std::string torch, nccl;  // versions; nccl: "" in a build for the CPU alone
  int64_t devices = 0, threads = 1;
  bool build_for_devices = false;
  // Square products, 2*n^3 operations each; the best of several, on the slowest device.
  double fp32_tflops = 0, bf16_tflops = 0;
};
// On every device in turn, else on the CPU with the threads of set_up_process. About two
// seconds a device. Requires: set_up_process was called.
DeviceProbe probe_devices();

}  // namespace lockstep::core
