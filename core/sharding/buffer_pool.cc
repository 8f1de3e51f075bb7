#include "core/sharding/buffer_pool.h"

#include <ATen/ops/empty.h>

namespace lockstep::core {

at::Tensor BufferPool::take_tensor(int64_t elements, at::ScalarType dtype) {
  const size_t bytes = static_cast<size_t>(elements) * c10::elementSize(dtype);
  c10::Storage storage(c10::Storage::use_byte_size_t(), static_cast<int64_t>(bytes), take(bytes));
  return at::empty({0}, at::TensorOptions(dtype).device(device_)).set_(storage, 0, {elements}, {1});
}

void BufferPool::give_tensor(at::Tensor& t) {
  if (!t.defined()) return;
  const size_t bytes = t.storage().nbytes();
  give(t.storage().set_data_ptr(c10::DataPtr()), bytes);
  t.reset();
}

}  // namespace lockstep::core
