#include "core/sharding/buffer_pool.h"

#include <ATen/ops/empty.h>

#include "base/check.h"
#include "core/device/devices.h"
#include "layout/best_fit.h"

namespace lockstep::core {

c10::DataPtr BufferPool::take(size_t bytes) {
  LOCKSTEP_CHECK(bytes > 0, "no bytes are taken");
  const auto found = layout::best_fit(idle_, static_cast<int64_t>(bytes));
  if (found == idle_.end()) {
    allocated_bytes_ += bytes;
    c10::DataPtr fresh = device_of(device_).allocate(bytes);
    bytes_of_[fresh.get()] = static_cast<int64_t>(bytes);
    return fresh;
  }
  c10::DataPtr buffer = std::move(found->second.back());
  found->second.pop_back();
  if (found->second.empty()) idle_.erase(found);
  return buffer;
}

void BufferPool::give(c10::DataPtr buffer) {
  LOCKSTEP_CHECK(buffer.get() != nullptr, "given memory was given before");
  const auto found = bytes_of_.find(buffer.get());
  LOCKSTEP_CHECK(found != bytes_of_.end(), "the memory that was given back is not the pool's");
  idle_[found->second].push_back(std::move(buffer));
}

at::Tensor BufferPool::take_tensor(int64_t elements, at::ScalarType dtype) {
  const size_t bytes = static_cast<size_t>(elements) * c10::elementSize(dtype);
  c10::Storage storage(c10::Storage::use_byte_size_t(), static_cast<int64_t>(bytes), take(bytes));
  return at::empty({0}, at::TensorOptions(dtype).device(device_)).set_(storage, 0, {elements}, {1});
}

void BufferPool::give_tensor(at::Tensor& t) {
  if (!t.defined()) return;
  give(t.storage().set_data_ptr(c10::DataPtr()));
  t.reset();
}

}  // namespace lockstep::core
