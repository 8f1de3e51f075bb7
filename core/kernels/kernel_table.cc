#include "core/kernels/kernel_table.h"

#include "core/device/devices.h"
#include "core/kernels/cpu_kernels.h"
#include "core/kernels/cuda_kernels.h"

namespace lockstep::core {

const Kernels& kernels_on(at::Device device) {
  if constexpr (!kCpuOnly)
    if (!device.is_cpu()) return cuda_kernels();
  return cpu_kernels();
}

}  // namespace lockstep::core
