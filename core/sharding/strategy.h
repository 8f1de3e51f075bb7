// A strategy (layout/strategy.h) on the device of this rank.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include "layout/strategy.h"

namespace lockstep::core {

struct Strategy : layout::Strategy {
  at::Device device = at::kCPU;  // what computes

  // Also the wire dtype of parameters and gradients.
  at::ScalarType compute() const { return bf16 ? at::kBFloat16 : at::kFloat; }
  // Where master weights and optimizer state lie.
  at::Device state_device() const { return offload ? at::Device(at::kCPU) : device; }
};

}  // namespace lockstep::core
