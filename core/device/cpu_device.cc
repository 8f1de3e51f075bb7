#include "core/device/cpu_device.h"

#include <ATen/ops/empty.h>
#include <c10/core/Allocator.h>

#include <cstring>

namespace lockstep::core {
namespace {

class CpuEvent : public Event {
 public:
  bool reached() const override { return true; }
  void wait() const override {}
};

class CpuStream : public Stream {
 public:
  std::unique_ptr<Event> record() override { return std::make_unique<CpuEvent>(); }
  void wait_for(const Event&) override {}
  void copy_to_host(void* to, const void* from, size_t bytes) override {
    std::memcpy(to, from, bytes);
  }
  void synchronize() override {}
  void* handle() const override { return nullptr; }
};

class CpuDevice : public Device {
 public:
  at::DeviceType type() const override { return at::kCPU; }
  int count() const override { return 0; }
  at::Device of_rank(int) const override { return at::kCPU; }
  void set_up(at::Device) const override {}
  std::string name() const override { return ""; }
  std::string uuid() const override { return ""; }
  std::string capability() const override { return ""; }
  std::optional<DeviceMemory> memory() const override { return std::nullopt; }
  std::string libraries() const override { return ""; }
  std::string collectives() const override { return ""; }

  c10::DataPtr allocate(size_t bytes) const override {
    return c10::GetAllocator(at::kCPU)->allocate(bytes);
  }
  at::Tensor host_tensor(at::IntArrayRef shape, at::ScalarType dtype) const override {
    return at::empty(shape, dtype);
  }
  at::Tensor copy_of(const at::Tensor& host, at::Device) const override { return host; }

  std::unique_ptr<Stream> current_stream() const override { return new_stream(); }
  std::unique_ptr<Stream> new_stream() const override { return std::make_unique<CpuStream>(); }
};

}  // namespace

const Device& cpu_device() {
  static const CpuDevice device;
  return device;
}

}  // namespace lockstep::core
