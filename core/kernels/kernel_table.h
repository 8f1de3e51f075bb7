// Which column of the table computes. With this header comes the table itself.
#pragma once

#include "core/kernels/kernels.h"

namespace lockstep::core {

// That of the device that the tensors lie on.
const Kernels& kernels_on(at::Device device);
inline const Kernels& kernels_on(const at::Tensor& t) { return kernels_on(t.device()); }

}  // namespace lockstep::core
