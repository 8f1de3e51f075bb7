// Which column of the table computes. With this header comes the table itself.
#pragma once

#include <span>
#include <vector>

#include "core/kernels/kernels.h"

namespace lockstep::core {

// That of the device that the tensors lie on.
const Kernels& kernels_on(at::Device device);
inline const Kernels& kernels_on(const at::Tensor& t) { return kernels_on(t.device()); }

// From now on it is `kernels` for tensors of `type`, a kind that core/device/added_device.h brings.
// One a process.
void add_kernels(at::DeviceType type, const Kernels& kernels);

// Kernels::digest_runs, for the host, which waits for the device.
std::vector<uint64_t> digests_of(const at::Tensor& flat, std::span<const DigestRun> runs);

}  // namespace lockstep::core
