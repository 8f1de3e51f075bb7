#include "core/device/devices.h"

#include "core/device/cpu_device.h"
#include "core/device/cuda_device.h"

namespace lockstep::core {

const Device& built_device() {
  if constexpr (kCpuOnly) {
    return cpu_device();
  } else {
    return cuda_device();
  }
}

const Device& device_of(at::Device device) {
  return device.is_cpu() ? cpu_device() : built_device();
}

const Device& local_device() { return built_device().count() > 0 ? built_device() : cpu_device(); }

}  // namespace lockstep::core
