// "Device memory" of the cases of kernels is the GPU's.
#include "tests/cuda_host/device_memory.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "base/check.h"

namespace lockstep::core {
namespace {

// A kernel's own fault shows at the next call.
void must(cudaError_t status) { LOCKSTEP_CHECK(status == cudaSuccess, cudaGetErrorString(status)); }

}  // namespace

void* allocate_on_device(size_t bytes) {
  constexpr int kGarbage = 0xff;  // NaN, in every format
  void* memory = nullptr;
  must(cudaMalloc(&memory, bytes));
  must(cudaMemset(memory, kGarbage, bytes));
  return memory;
}
void free_on_device(void* memory) { must(cudaFree(memory)); }
void copy_to_device(void* to, const void* from, size_t bytes) {
  must(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice));
}
void copy_from_device(void* to, const void* from, size_t bytes) {
  must(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost));
}

void expect_same_each_time(const std::function<uint64_t()>& run) { EXPECT_EQ(run(), run()); }

}  // namespace lockstep::core
