#include "core/train/device_probe.h"

#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <torch/headeronly/version.h>

#include <algorithm>
#include <limits>

#include "base/clock.h"
#include "base/text.h"
#include "core/device/devices.h"
#include "core/kernels/matmul.h"
#include "core/train/identity.h"

namespace lockstep::core {
namespace {

constexpr int64_t kCpuSide = 1024, kDeviceSide = 8192;
constexpr int kFewest = 3, kMost = 50;
constexpr double kLimit_s = 1;  // after the fewest, of one data type

double tflops(at::Device device, at::ScalarType dtype) {
  const int64_t side = device.is_cpu() ? kCpuSide : kDeviceSide;
  const at::Tensor a = at::full({side, side}, 0.5, at::TensorOptions(device).dtype(dtype));
  const double start = system_clock().monotonic_s();
  double best_s = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kMost; ++i) {
    const double before = system_clock().monotonic_s();
    if (i > kFewest && before - start > kLimit_s) break;
    const at::Tensor square = product(a, a);
    device_of(device).current_stream()->synchronize();
    best_s = std::min(best_s, system_clock().monotonic_s() - before);
  }
  const double n = static_cast<double>(side);
  return 2 * n * n * n / best_s * 1e-12;
}

}  // namespace

DeviceProbe probe_devices() {
  DeviceProbe probe;
  probe.device = device_identity();
  probe.torch = TORCH_VERSION;
  probe.nccl = built_device().collectives();
  probe.devices = built_device().count();
  probe.threads = at::get_num_threads();
  probe.build_for_devices = !kCpuOnly;
  probe.fp32_tflops = probe.bf16_tflops = std::numeric_limits<double>::infinity();
  for (int index = 0; index < std::max<int64_t>(1, probe.devices); ++index) {
    const at::Device device = local_device().of_rank(index);
    local_device().set_up(device);
    probe.fp32_tflops = std::min(probe.fp32_tflops, tflops(device, at::kFloat));
    probe.bf16_tflops = std::min(probe.bf16_tflops, tflops(device, at::kBFloat16));
  }
  return probe;
}

}  // namespace lockstep::core
