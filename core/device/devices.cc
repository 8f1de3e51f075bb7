#include "core/device/devices.h"

#include "core/device/added_device.h"
#include "core/device/cpu_device.h"
#include "core/device/cuda_device.h"

namespace lockstep::core {
namespace {

const Device* added = nullptr;

}  // namespace

const Device& built_device() {
  if constexpr (kCpuOnly) {
    return cpu_device();
  } else {
    return cuda_device();
  }
}

const Device& device_of(at::Device device) {
  if (device.is_cpu()) return cpu_device();
  return added != nullptr && device.type() == added->type() ? *added : built_device();
}

const Device& local_device() {
  if (added != nullptr) return *added;
  return built_device().count() > 0 ? built_device() : cpu_device();
}

void add_device(const Device& kind) { added = &kind; }

}  // namespace lockstep::core
