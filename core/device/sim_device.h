// Simulated devices, for tests: their memory is the host's under another address
// (sim_memory.h), their streams are queues that a seed works off (sim_world.h), their arithmetic is
// the CPU's. To the code above they are a kind of device as CUDA is: c10's PrivateUse1, device r of
// which is rank r's.
//
// What is called on tensors of a device is given to the compute queue and done later, on the CPU's
// tensors of the same bytes (core/kernels/sim/sim_kernels.h). The work knows addresses, and keeps
// no tensor alive, as a launched kernel does.
#pragma once

#include <functional>
#include <string>
#include <tuple>

#include "core/device/device.h"
#include "core/device/sim_memory.h"
#include "core/device/sim_world.h"

namespace lockstep::core {

const Device& sim_device();
// From now on tensors of this kind may be made, and local_device is it.
void use_sim_device();

inline constexpr at::DeviceType kSim = at::kPrivateUse1;

// The place and shape of a tensor, on the host or on a device, without a hold on it.
class SimView {
 public:
  SimView() = default;
  explicit SimView(const at::Tensor& t);
  // The CPU's tensor of those bytes; undefined for an undefined one.
  at::Tensor tensor() const;

 private:
  std::byte* bytes_ = nullptr;
  std::vector<int64_t> sizes_, strides_;
  at::ScalarType dtype_ = at::kFloat;
  bool defined_ = false;
};

// `work` for the compute queue of the device of `on`. The host goes on.
SimMark sim_launch(const at::Tensor& on, const char* name, std::function<void()> work);
// The same; `work` is called with the CPU's views of `tensors`, in order.
template <typename Work, typename... Tensors>
SimMark sim_work(const char* name, const at::Tensor& on, Work work, const Tensors&... tensors) {
  return sim_launch(on, name, [work, views = std::tuple(SimView(tensors)...)] {
    std::apply([&](const auto&... view) { work(view.tensor()...); }, views);
  });
}
// to.copy_(from), one of them on a device: the host goes on only where it may.
void sim_copy(const at::Tensor& to, const at::Tensor& from, bool non_blocking);

// The queue behind a stream of sim_device().
const std::shared_ptr<SimQueue>& queue_of(const Stream& stream);

}  // namespace lockstep::core
