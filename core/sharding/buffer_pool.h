// Memory for gathered units and exchanged gradients: fixed sizes, reused, nothing allocated in the
// steady state, nothing zeroed. A gathered unit's tensors stay; the memory under their storage
// comes and goes. On a device whoever gives memory may still have work under way on it: what
// takes it next comes after that, on the same stream or in a collective.
// Thread: the training thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include <map>
#include <vector>

#include "core/device/devices.h"

namespace lockstep::core {

class BufferPool {
 public:
  explicit BufferPool(at::Device device = at::kCPU) : device_(device) {}
  c10::DataPtr take(size_t bytes) {
    std::vector<c10::DataPtr>& free = free_[bytes];
    if (free.empty()) {
      allocated_bytes_ += bytes;
      return device_of(device_).allocate(bytes);
    }
    c10::DataPtr buffer = std::move(free.back());
    free.pop_back();
    return buffer;
  }
  void give(c10::DataPtr buffer, size_t bytes) { free_[bytes].push_back(std::move(buffer)); }

  // The same as a 1-D tensor. give: nobody else uses it any more; undefined is fine.
  at::Tensor take_tensor(int64_t elements, at::ScalarType dtype);
  void give_tensor(at::Tensor& t);

  size_t allocated_bytes() const { return allocated_bytes_; }

 private:
  at::Device device_;
  std::map<size_t, std::vector<c10::DataPtr>> free_;  // by size
  size_t allocated_bytes_ = 0;
};

}  // namespace lockstep::core
