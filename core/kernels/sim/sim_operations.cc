#include "core/kernels/sim/sim_operations.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/_local_scalar_dense_native.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

#include "base/check.h"
#include "core/device/sim_device.h"
#include "core/kernels/matmul.h"

namespace lockstep::core {
namespace {

// LibTorch's allocator of one device.
class SimAllocator : public c10::Allocator {
 public:
  explicit SimAllocator(int device) : device_(device) {}
  c10::DataPtr allocate(size_t bytes) override {
    return SimMemory::here().allocate(device_, bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void*, const void*, size_t) const override {
    LOCKSTEP_CHECK(false, "device memory is copied by a task");
  }

 private:
  int device_;
};

constexpr int kMostDevices = 16;

SimAllocator& allocator_of(const std::optional<at::Device>& device) {
  static std::vector<SimAllocator> all = [] {
    std::vector<SimAllocator> list;
    for (int i = 0; i < kMostDevices; ++i) list.emplace_back(i);
    return list;
  }();
  const int index = device && device->has_index() ? device->index() : std::max(0, SimWorld::rank());
  LOCKSTEP_CHECK(index < kMostDevices, index);
  return all[static_cast<size_t>(index)];
}

const c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

at::Tensor empty(c10::IntArrayRef size, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>,
                 std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(size, &allocator_of(device), kKeys, dtype.value_or(at::kFloat),
                                   format);
}
at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                         std::optional<at::Device> device, std::optional<bool>) {
  return at::detail::empty_strided_generic(size, stride, &allocator_of(device), kKeys,
                                           dtype.value_or(at::kFloat));
}
at::Tensor& set_storage(at::Tensor& self, at::Storage source, int64_t offset, c10::IntArrayRef size,
                        c10::IntArrayRef stride) {
  return at::native::set_storage_cpu_(self, std::move(source), offset, size, stride);
}

at::Tensor& copy(at::Tensor& self, const at::Tensor& from, bool non_blocking) {
  const at::Tensor same_shape = from.sizes() == self.sizes() ? from : from.expand(self.sizes());
  sim_copy(self, same_shape, non_blocking);
  return self;
}
at::Scalar item(const at::Tensor& self) { return at::native::_local_scalar_dense_cpu(self.cpu()); }

at::Tensor& zero(at::Tensor& self) {
  sim_work(
      "zero_", self, [](at::Tensor t) { t.zero_(); }, self);
  return self;
}
at::Tensor& fill(at::Tensor& self, const at::Scalar& value) {
  sim_work(
      "fill_", self, [value](at::Tensor t) { t.fill_(value); }, self);
  return self;
}
at::Tensor& add(at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha) {
  sim_work(
      "add_", self, [alpha](at::Tensor t, const at::Tensor& o) { t.add_(o, alpha); }, self, other);
  return self;
}
// A number comes as a tensor of the host: it is read at once.
at::Tensor& mul(at::Tensor& self, const at::Tensor& other) {
  LOCKSTEP_CHECK(other.is_cpu() && other.dim() == 0, "products with numbers alone are known");
  sim_work(
      "mul_", self, [n = other.item()](at::Tensor t) { t.mul_(n); }, self);
  return self;
}
at::Tensor product_with(const at::Tensor& self, const at::Tensor& other) {
  at::Tensor out = at::empty_like(self).copy_(self);
  return mul(out, other);
}

// By the CPU's choice of library: matmul.h.
at::Tensor& multiply_out(const at::Tensor& a, const at::Tensor& b, at::Tensor& out) {
  sim_work(
      "multiply", out,
      [](const at::Tensor& x, const at::Tensor& y, at::Tensor to) { multiply(x, y, to); }, a, b,
      out);
  return out;
}
at::Tensor mm(const at::Tensor& a, const at::Tensor& b) { return product(a, b); }
at::Tensor& addmm(at::Tensor& self, const at::Tensor& a, const at::Tensor& b,
                  const at::Scalar& beta, const at::Scalar& alpha) {
  sim_work(
      "addmm_", self,
      [beta, alpha](at::Tensor sum, const at::Tensor& x, const at::Tensor& y) {
        multiply_add(x, y, sum, beta.toDouble(), alpha.toDouble());
      },
      self, a, b);
  return self;
}
at::Tensor index_select(const at::Tensor& self, int64_t dim, const at::Tensor& index) {
  std::vector<int64_t> shape = self.sizes().vec();
  shape[static_cast<size_t>(dim)] = index.numel();
  at::Tensor out = at::empty(shape, self.options());
  sim_work(
      "index_select", self,
      [dim](at::Tensor to, const at::Tensor& from, const at::Tensor& rows) {
        at::index_select_out(to, from, dim, rows);
      },
      out, self, index);
  return out;
}
at::Tensor cat(const at::ITensorListRef& tensors, int64_t dim) {
  std::vector<at::Tensor> parts;
  for (const at::Tensor& t : tensors) parts.push_back(t);
  std::vector<int64_t> shape = parts.front().sizes().vec();
  int64_t& along = shape[static_cast<size_t>(dim)];
  along = 0;
  for (const at::Tensor& t : parts) along += t.size(dim);
  at::Tensor out = at::empty(shape, parts.front().options());
  int64_t first = 0;
  for (const at::Tensor& t : parts) {
    out.narrow(dim, first, t.size(dim)).copy_(t);
    first += t.size(dim);
  }
  return out;
}

}  // namespace

void register_sim_operations() {
  static torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1,
                                __FILE__, __LINE__);
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("as_strided", &at::native::as_strided_tensorimpl);
  library.impl("view", &at::native::view);
  library.impl("_reshape_alias", &at::native::_reshape_alias);
  library.impl("set_.source_Storage_storage_offset", &set_storage);
  library.impl("_local_scalar_dense", &item);
  library.impl("copy_", &copy);
  library.impl("zero_", &zero);
  library.impl("fill_.Scalar", &fill);
  library.impl("add_.Tensor", &add);
  library.impl("mul_.Tensor", &mul);
  library.impl("mul.Tensor", &product_with);
  library.impl("mm.out", &multiply_out);
  library.impl("bmm.out", &multiply_out);
  library.impl("mm", &mm);
  library.impl("addmm_", &addmm);
  library.impl("index_select", &index_select);
  library.impl("cat", &cat);
}

}  // namespace lockstep::core
