// What a run takes of a GPU, and of its host, beside the tensors of MemoryPlan: `lockstep plan
// --device`. Estimates that nobody has measured. Pure.
#pragma once

#include "layout/device_rates.h"
#include "layout/memory_plan.h"

namespace lockstep::layout {

struct DeviceMemory {
  std::vector<MemoryRow> device;             // the tensors, and all that is beside them
  std::vector<MemoryRow> host;               // MemoryPlan::host, and what is page-locked
  int64_t device_bytes = 0, host_bytes = 0;  // their sums
  int64_t capacity_bytes = 0;

  bool fits() const { return device_bytes <= capacity_bytes; }
};
// Requires: `plan` is that of `config`, `spec` and `ranks`; rates.gpu().
DeviceMemory device_memory(const MemoryPlan& plan, const Config& config, const ModelSpec& spec,
                           const Ranks& ranks, const DeviceRates& rates);

// LibTorch's allocator of page-locked memory gives powers of two.
int64_t page_locked_bytes(int64_t bytes);

// Of each of the two page-locked buffers through which the state of a GPU goes to a save
// (core/device/block_copies.h). At 25 to 50 GB/s such a copy takes milliseconds, beside which its
// launch and its event are nothing; and a power of two wastes no memory.
inline constexpr int64_t kSaveBuffers = 2, kSaveBufferBytes = int64_t{64} << 20;

}  // namespace lockstep::layout
