#include "core/device/device.h"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#ifdef LOCKSTEP_CUDA
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#endif

namespace lockstep::core {

#ifdef LOCKSTEP_CUDA

int cuda_device_count() { return c10::cuda::device_count(); }

at::Device compute_device(int local_rank) {
  const int count = cuda_device_count();
  if (count == 0) return at::kCPU;
  return {at::kCUDA, static_cast<c10::DeviceIndex>(local_rank % count)};
}

void set_up_device(at::Device device) {
  if (!device.is_cuda()) return;
  c10::cuda::set_device(device.index());
  at::Context& context = at::globalContext();
  context.lazyInitDevice(at::kCUDA);
  context.setDeterministicAlgorithms(true, /*warn_only=*/false);
  context.setDeterministicFillUninitializedMemory(false);
  context.setDeterministicCuDNN(true);
  context.setBenchmarkCuDNN(false);
  context.setAllowTF32CuBLAS(false);
  context.setAllowTF32CuDNN(false);
  context.setAllowBF16ReductionCuBLAS(false);
}

std::string cuda_device_name() {
  if (cuda_device_count() == 0) return "";
  return at::cuda::getCurrentDeviceProperties()->name;
}

std::optional<DeviceMemory> cuda_memory() {
  if (cuda_device_count() == 0) return std::nullopt;
  using c10::CachingAllocator::StatType;
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(c10::cuda::current_device());
  const auto& allocated = stats.allocated_bytes[static_cast<size_t>(StatType::AGGREGATE)];
  const auto& reserved = stats.reserved_bytes[static_cast<size_t>(StatType::AGGREGATE)];
  return DeviceMemory{allocated.current, allocated.peak, reserved.current, reserved.peak,
                      static_cast<int64_t>(at::cuda::getCurrentDeviceProperties()->totalGlobalMem)};
}

void synchronize(at::Device device) {
  if (device.is_cuda()) c10::cuda::getCurrentCUDAStream(device.index()).synchronize();
}

#else

int cuda_device_count() { return 0; }
at::Device compute_device(int) { return at::kCPU; }
void set_up_device(at::Device) {}
std::string cuda_device_name() { return ""; }
std::optional<DeviceMemory> cuda_memory() { return std::nullopt; }
void synchronize(at::Device) {}

#endif

at::Tensor host_tensor(at::IntArrayRef shape, at::ScalarType dtype, at::Device device) {
  return at::empty(shape, at::TensorOptions(dtype).pinned_memory(device.is_cuda()));
}

at::Tensor on_device(const at::Tensor& host, at::Device device) {
  return device.is_cuda() ? host.to(device, /*non_blocking=*/true) : host;
}

}  // namespace lockstep::core
