#include "core/train/process.h"

#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <malloc.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "base/host_memory.h"
#include "core/device/devices.h"
#include "core/kernels/matmul.h"
#include "core/train/memory_stats.h"
#include "layout/device_memory.h"

namespace lockstep::core {
namespace {

constexpr int kHeapBytes = 1 << 30;  // freed blocks up to this size stay in the process
static_assert(kKeptBytes < kHeapBytes);

}  // namespace

void set_up_process(int threads) {
  at::set_num_threads(threads);
  // Activations come and go every slot: memory given back to the kernel is faulted in again,
  // zeroed.
  mallopt(M_MMAP_THRESHOLD, kHeapBytes);
  mallopt(M_TRIM_THRESHOLD, kHeapBytes);
  install_counting_allocator();
}

void keep_memory(int64_t bytes) {
  const int64_t most = std::clamp<int64_t>(available_memory_bytes() / 4, 0, kKeptBytes);
  const auto kept = static_cast<size_t>(std::clamp<int64_t>(bytes, 0, most));
  const auto block = std::make_unique_for_overwrite<std::byte[]>(kept);
  volatile std::byte* touched = block.get();  // or the compiler sees that nobody reads it
  const size_t page = 4096;
  for (size_t at = 0; at < kept; at += page) touched[at] = std::byte{0};
}

void warm_up(int local_rank) {
  constexpr int64_t kSide = 256;
  const at::Device device = local_device().of_rank(local_rank);
  const Device& kind = device_of(device);
  kind.set_up(device);
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor a = at::full({kSide, kSide}, 0.5, at::TensorOptions(device).dtype(dtype));
    product(a, a);
  }
  // What is given back here stays page-locked, for the buffers that a save asks for.
  std::vector<at::Tensor> buffers;
  for (int64_t i = 0; i < layout::kSaveBuffers; ++i)
    buffers.push_back(kind.host_tensor({layout::kSaveBufferBytes}, at::kByte));
  kind.current_stream()->synchronize();
}

Result<Membership> join_alone() {
  RendezvousOptions options;
  options.device = local_device().of_rank(0);
  local_device().set_up(options.device);
  return join(options);
}

}  // namespace lockstep::core
