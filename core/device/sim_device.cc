#include "core/device/sim_device.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <cstring>

#include "base/check.h"
#include "base/text.h"
#include "core/device/added_device.h"

namespace lockstep::core {
namespace {

// Of the calling thread: its rank's, until set_up says otherwise.
thread_local int chosen_device = -1;
int current_device() { return chosen_device >= 0 ? chosen_device : std::max(0, SimWorld::rank()); }

class SimEvent : public Event {
 public:
  explicit SimEvent(SimMark mark) : mark_(std::move(mark)) {}
  bool reached() const override {
    if (!mark_.reached()) SimWorld::here().look(mark_, "an event");
    return mark_.reached();
  }
  void wait() const override {
    if (SimWorld::here().leaves_out({SimCall::Rule::kSynchronize, "event"})) return;
    SimWorld::here().wait(mark_, "an event");
  }
  const SimMark& mark() const { return mark_; }

 private:
  SimMark mark_;
};

class SimTimeMark : public TimeMark {
 public:
  explicit SimTimeMark(std::shared_ptr<const SimTime> time) : time_(std::move(time)) {}
  bool reached() const override {
    return time_->reached() ||
           SimWorld::here().leaves_out({SimCall::Rule::kTimeRead, "a mark's time"});
  }
  double seconds_since(const TimeMark& earlier) const override {
    return seconds() - static_cast<const SimTimeMark&>(earlier).seconds();
  }

 private:
  double seconds() const {
    if (!time_->reached()) throw SimFailure("the time of a mark is read before it is reached");
    return static_cast<double>(time_->tick) * SimWorld::kTickSeconds;
  }
  std::shared_ptr<const SimTime> time_;
};

class SimStream : public Stream {
 public:
  explicit SimStream(std::shared_ptr<SimQueue> queue) : queue_(std::move(queue)) {}
  std::unique_ptr<Event> record() override {
    return std::make_unique<SimEvent>(SimWorld::here().mark(queue_));
  }
  std::unique_ptr<TimeMark> mark_time() override {
    return std::make_unique<SimTimeMark>(SimWorld::here().mark_time(queue_));
  }
  void wait_for(const Event& event) override {
    const SimMark& mark = static_cast<const SimEvent&>(event).mark();
    SimWorld& world = SimWorld::here();
    const bool computes = queue_ == world.compute_queue(current_device());
    if (world.leaves_out({SimCall::Rule::kStreamWait, computes ? "compute" : "other"})) return;
    world.give(queue_, {.name = "wait for an event",
                        .run = [] {},
                        .ready = [mark] { return mark.reached(); },
                        .needs = [mark] { return mark; }});
  }
  void copy_to_host(void* to, const void* from, size_t bytes) override {
    const std::byte* const there = SimMemory::here().bytes_at(from);
    SimWorld::here().give(queue_, {"copy to the host", [=] { std::memcpy(to, there, bytes); }});
  }
  void synchronize() override {
    if (SimWorld::here().leaves_out({SimCall::Rule::kSynchronize, "stream"})) return;
    SimWorld::here().wait(SimWorld::here().mark(queue_), "a stream");
  }
  void* handle() const override { return nullptr; }
  const std::shared_ptr<SimQueue>& queue() const { return queue_; }

 private:
  std::shared_ptr<SimQueue> queue_;
};

class SimDevice : public Device {
 public:
  at::DeviceType type() const override { return kSim; }
  int count() const override { return SimWorld::here().ranks(); }
  at::Device of_rank(int local_rank) const override {
    return {kSim, static_cast<c10::DeviceIndex>(local_rank % count())};
  }
  void set_up(at::Device device) const override { chosen_device = device.index(); }
  std::string name() const override { return "simulated"; }
  // Processes have one each, and no way from one to another's: as if they shared it.
  std::string uuid() const override { return "simulated"; }
  std::string capability() const override { return "0.0"; }
  std::optional<DeviceMemory> memory() const override {
    SimMemory& memory = SimMemory::here();
    const int64_t now = memory.allocated_bytes(current_device());
    const int64_t most = memory.most_allocated_bytes(current_device());
    return DeviceMemory{now, most, now, most, int64_t{16} << 30};
  }
  std::string libraries() const override { return ""; }
  std::string collectives() const override { return "simulated"; }

  c10::DataPtr allocate(size_t bytes) const override {
    return SimMemory::here().allocate(current_device(), bytes);
  }
  at::Tensor host_tensor(at::IntArrayRef shape, at::ScalarType dtype) const override {
    int64_t elements = 1;
    for (const int64_t n : shape) elements *= n;
    const size_t bytes = static_cast<size_t>(elements) * c10::elementSize(dtype);
    const c10::Storage storage(c10::Storage::use_byte_size_t(), static_cast<int64_t>(bytes),
                               SimMemory::here().allocate_host(bytes));
    return at::empty({0}, at::TensorOptions(dtype)).set_(storage, 0, shape);
  }
  at::Tensor copy_of(const at::Tensor& host, at::Device device) const override {
    return host.to(device, /*non_blocking=*/true);
  }

  std::unique_ptr<Stream> current_stream() const override {
    return std::make_unique<SimStream>(SimWorld::here().compute_queue(current_device()));
  }
  std::unique_ptr<Stream> new_stream() const override {
    return std::make_unique<SimStream>(SimWorld::here().new_queue());
  }
};

// What LibTorch asks about devices of this kind.
struct SimGuard final : c10::impl::DeviceGuardImplInterface {
  at::DeviceType type() const override { return kSim; }
  at::Device exchangeDevice(at::Device device) const override {
    const at::Device before = getDevice();
    chosen_device = device.index();
    return before;
  }
  at::Device getDevice() const override {
    return {kSim, static_cast<c10::DeviceIndex>(current_device())};
  }
  void setDevice(at::Device device) const override { chosen_device = device.index(); }
  void uncheckedSetDevice(at::Device device) const noexcept override {
    chosen_device = device.index();
  }
  c10::Stream getStream(at::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override { return stream; }
  c10::DeviceIndex deviceCount() const noexcept override {
    SimWorld* const world = SimWorld::current();
    return static_cast<c10::DeviceIndex>(world != nullptr ? world->ranks() : 0);
  }
};

std::string words_of(const at::Tensor& t) { return c10::toString(t.scalar_type()); }

}  // namespace

const Device& sim_device() {
  static const SimDevice device;
  return device;
}

void use_sim_device() {
  static const SimGuard guard;
  c10::impl::device_guard_impl_registry[static_cast<size_t>(kSim)].store(&guard);
  add_device(sim_device());
}

SimView::SimView(const at::Tensor& t) {
  if (!t.defined()) return;
  defined_ = true;
  sizes_ = t.sizes().vec();
  strides_ = t.strides().vec();
  dtype_ = t.scalar_type();
  void* const at = t.numel() > 0 ? t.data_ptr() : nullptr;
  bytes_ = t.is_cpu() ? static_cast<std::byte*>(at) : SimMemory::here().bytes_at(at);
}

at::Tensor SimView::tensor() const {
  if (!defined_) return {};
  return at::from_blob(bytes_, sizes_, strides_, at::TensorOptions(dtype_));
}

SimMark sim_launch(const at::Tensor& on, const char* name, std::function<void()> work) {
  LOCKSTEP_CHECK(on.device().type() == kSim, name, " on ", on.device().str());
  SimWorld& world = SimWorld::here();
  return world.give(world.compute_queue(on.device().index()), {name, std::move(work)});
}

void sim_copy(const at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  if (to.numel() == 0) return;
  SimMemory& memory = SimMemory::here();
  SimWorld& world = SimWorld::here();
  const bool inside = !to.is_cpu() && !from.is_cpu();
  const at::Tensor& host = to.is_cpu() ? to : from;
  const bool page_locked = !inside && memory.from_allocate_host(host.data_ptr());
  // Ordinary memory of the host outlives the copy even where a test leaves the wait out.
  const auto copy = [to_view = SimView(to), from_view = SimView(from),
                     held = inside || page_locked ? at::Tensor() : host] {
    to_view.tensor().copy_(from_view.tensor());
  };
  const SimMark done = sim_launch(to.is_cpu() ? from : to, "copy", copy);
  if (inside) return;
  const SimCall call{to.is_cpu() ? SimCall::Rule::kCopyToHost : SimCall::Rule::kCopyFromHost,
                     words_of(host), host.numel()};
  if (page_locked && !world.leaves_out({SimCall::Rule::kHostReuse, words_of(host), host.numel()}))
    memory.used_until(host.data_ptr(), done);
  if ((non_blocking && page_locked) || world.leaves_out(call)) return;
  world.wait(done, text("a copy ", to.is_cpu() ? "to" : "from", " the host"));
}

const std::shared_ptr<SimQueue>& queue_of(const Stream& stream) {
  return static_cast<const SimStream&>(stream).queue();
}

}  // namespace lockstep::core
