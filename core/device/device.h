// What computes: one class for a kind of device, which says how its memory, its copies and its
// order of work behave. The CPU's is in cpu_device.cc, CUDA's in cuda_device.cc, and devices.h
// gives them out; what is computed is the table's in core/kernels.
//
// A device does what a stream is given in order, after the host has gone on, and streams side by
// side; an event is a place in a stream. The CPU has done what it was given when the call returns,
// so that its streams are empty and its events reached. LibTorch's operations and the kernels go to
// the current stream; a collective has a stream of its own (core/comm).
// Thread: the training thread, but for events, and for a stream that another thread was given.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::core {

class Event {
 public:
  virtual ~Event() = default;
  // Whether all is done that its stream was given before it. Does not wait.
  virtual bool reached() const = 0;
  // The host waits until it is, and its thread sleeps meanwhile.
  virtual void wait() const = 0;
};

// A place in a stream that has a time, by the device's clock.
class TimeMark {
 public:
  virtual ~TimeMark() = default;
  // As Event::reached.
  virtual bool reached() const = 0;
  // From `earlier`, of the same stream. Requires: both are reached.
  virtual double seconds_since(const TimeMark& earlier) const = 0;
};

class Stream {
 public:
  virtual ~Stream() = default;
  virtual std::unique_ptr<Event> record() = 0;
  // Null for the CPU, which does at once what it is given: the host's clock has its times.
  virtual std::unique_ptr<TimeMark> mark_time() { return nullptr; }
  // What this stream is given from now on begins after `event`, of the same kind of device.
  virtual void wait_for(const Event& event) = 0;
  // Copies device memory to memory of host_tensor; the host goes on.
  virtual void copy_to_host(void* to, const void* from, size_t bytes) = 0;
  // The host waits until all is done.
  virtual void synchronize() = 0;
  // The library's own (cudaStream_t), for what is called with it; null for the CPU.
  virtual void* handle() const = 0;
};

struct DeviceMemory {
  int64_t allocated_bytes, max_allocated_bytes, reserved_bytes, max_reserved_bytes, total_bytes;
};

class Device {
 public:
  virtual ~Device() = default;
  // Of its tensors; the kind's, whether there is one or not.
  virtual at::DeviceType type() const = 0;
  // Devices that LibTorch sees; 0 for the CPU (CUDA_VISIBLE_DEVICES="" hides CUDA's).
  virtual int count() const = 0;
  // The one of a rank: local_rank % count where there are several. Not for a kind of which none is
  // seen, but for the CPU.
  virtual at::Device of_rank(int local_rank) const = 0;
  // Once, before the first tensor on it: makes `device` the current one and pins what its
  // arithmetic depends on: deterministic algorithms, no TF32, no sums in bf16. For CUDA the
  // environment must have kCublasWorkspace by then.
  virtual void set_up(at::Device device) const = 0;
  // Of the current device; "" and none for the CPU.
  virtual std::string name() const = 0;
  // The same for every process that sees it, whatever its index there: "GPU-8d2c…".
  virtual std::string uuid() const = 0;
  virtual std::string capability() const = 0;  // what its instructions are: "9.0"
  virtual std::optional<DeviceMemory> memory() const = 0;
  // Versions of what computes beside LibTorch's own code: "cuDNN 9.19.0"; "" for the CPU.
  virtual std::string libraries() const = 0;
  // The version of the library that its collectives go over; "" for the CPU.
  virtual std::string collectives() const = 0;

  // Memory on the current device, not zeroed; given back to it when the pointer goes.
  virtual c10::DataPtr allocate(size_t bytes) const = 0;
  // Host memory for copies to and from it: page-locked for CUDA.
  virtual at::Tensor host_tensor(at::IntArrayRef shape, at::ScalarType dtype) const = 0;
  // `host`, on `device`, in the order of its current stream; itself for the CPU. A page-locked
  // tensor is copied while the host goes on, and may be freed: its memory is reused after the copy.
  virtual at::Tensor copy_of(const at::Tensor& host, at::Device device) const = 0;

  virtual std::unique_ptr<Stream> current_stream() const = 0;
  // Beside the current one, and before it where both have work.
  virtual std::unique_ptr<Stream> new_stream() const = 0;

  // What this thread gives the device between the two calls has a name for a profiler, and the name
  // of a part (CUDA: NVTX's ranges; others: none). Ranges nest.
  virtual void enter_range(std::string_view, std::string_view) const {}
  virtual void leave_range() const {}
};

}  // namespace lockstep::core
