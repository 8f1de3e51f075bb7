#include "core/train/device_probe.h"

#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <limits>

#include "base/clock.h"
#include "base/text.h"
#include "core/device/device.h"
#include "core/train/identity.h"
#ifdef LOCKSTEP_CUDA
#include <nccl.h>
#endif

namespace lockstep::core {
namespace {

constexpr int64_t kCpuSide = 1024, kCudaSide = 8192;
constexpr int kFewest = 3, kMost = 50;
constexpr double kLimit_s = 1;  // after the fewest, of one data type

double tflops(at::Device device, at::ScalarType dtype) {
  const int64_t side = device.is_cuda() ? kCudaSide : kCpuSide;
  const at::Tensor a = at::full({side, side}, 0.5, at::TensorOptions(device).dtype(dtype));
  const double start = system_clock().monotonic_s();
  double best_s = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kMost; ++i) {
    const double before = system_clock().monotonic_s();
    if (i > kFewest && before - start > kLimit_s) break;
    const at::Tensor product = at::mm(a, a);
    synchronize(device);
    best_s = std::min(best_s, system_clock().monotonic_s() - before);
  }
  const double n = static_cast<double>(side);
  return 2 * n * n * n / best_s * 1e-12;
}

std::string nccl_version() {
#ifdef LOCKSTEP_CUDA
  constexpr int kMajor = 10000, kMinor = 100;  // 2.27.5 is 22705
  int version = 0;
  if (ncclGetVersion(&version) != ncclSuccess) return "unknown";
  return text(version / kMajor, ".", version % kMajor / kMinor, ".", version % kMinor);
#else
  return "";
#endif
}

}  // namespace

DeviceProbe probe_devices() {
  DeviceProbe probe;
  probe.device = device_identity();
  probe.torch = TORCH_VERSION;
  probe.nccl = nccl_version();
  probe.cuda_devices = cuda_device_count();
  probe.threads = at::get_num_threads();
#ifdef LOCKSTEP_CUDA
  probe.cuda_build = true;
#endif
  probe.fp32_tflops = probe.bf16_tflops = std::numeric_limits<double>::infinity();
  for (int index = 0; index < std::max<int64_t>(1, probe.cuda_devices); ++index) {
    const at::Device device = compute_device(index);
    set_up_device(device);
    probe.fp32_tflops = std::min(probe.fp32_tflops, tflops(device, at::kFloat));
    probe.bf16_tflops = std::min(probe.bf16_tflops, tflops(device, at::kBFloat16));
  }
  return probe;
}

}  // namespace lockstep::core
