// The device that this rank computes on. The same interface in every build: without CUDA it is the
// CPU.
// Thread: the training thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

namespace lockstep::core {

// CUDA devices that LibTorch sees; 0 in a build without CUDA (CUDA_VISIBLE_DEVICES="" hides them).
int cuda_device_count();
// CUDA device local_rank % count where there is one; else the CPU.
at::Device compute_device(int local_rank);
// Once, before the first tensor on it: makes `device` the current one and pins what its arithmetic
// depends on: deterministic algorithms, no TF32, no sums in bf16. For CUDA the environment must
// have kCublasWorkspace by then.
void set_up_device(at::Device device);

// Name and value of the environment variable that gives cuBLAS the same workspace every time: its
// choice of algorithm depends on it.
inline constexpr const char* kCublasWorkspace[] = {"CUBLAS_WORKSPACE_CONFIG", ":4096:8"};

// Host memory for copies to and from `device`: page-locked for CUDA.
at::Tensor host_tensor(at::IntArrayRef shape, at::ScalarType dtype, at::Device device);
// `host`, on `device`, in the order of its current stream; itself for the CPU. A page-locked tensor
// is copied while the host goes on, and may be freed: its memory is reused after the copy.
at::Tensor on_device(const at::Tensor& host, at::Device device);
// Of the current CUDA device; "" and none where the CPU computes.
std::string cuda_device_name();
struct DeviceMemory {
  int64_t allocated_bytes, max_allocated_bytes, reserved_bytes, max_reserved_bytes, total_bytes;
};
std::optional<DeviceMemory> cuda_memory();
// Waits until the current stream of `device` has done all it was given.
void synchronize(at::Device device);

}  // namespace lockstep::core
