// How state and work are spread over ranks: an ordinary value. All strategies give the same bits.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include "config/config.h"
#include "core/sharding/fold_tree.h"

namespace lockstep::core {

struct Strategy {
  bool forward_only = false;   // no optimizer state
  bool keep_gathered = false;  // from a unit's first use to the end of the step
  bool forward_prefetch = true;
  BackwardPrefetch backward_prefetch = BackwardPrefetch::kPre;
  bool block_slots = false;             // slot map
  at::ScalarType compute = at::kFloat;  // also the wire dtype of parameters and gradients
  Reduction reduction = Reduction::kTree;
  at::Device device = at::kCPU;  // what computes
  bool offload = false;          // state lies, and is updated, on the host

  // Where master weights and optimizer state lie.
  at::Device state_device() const { return offload ? at::Device(at::kCPU) : device; }

  // Requires a validated config.
  static Strategy create(const Config& config, at::Device device);
};

}  // namespace lockstep::core
