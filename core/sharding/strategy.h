// How state and work are spread over ranks: an ordinary value. All strategies give the same bits.
#pragma once

#include <c10/core/ScalarType.h>

#include <string>

#include "base/config.h"
#include "core/sharding/fold_tree.h"

namespace lockstep::core {

struct Strategy {
  std::string name = "full_shard";
  bool replicate_state = false;  // every rank holds all of master, m and v (ddp, single)
  bool forward_prefetch = true, backward_prefetch = true;
  at::ScalarType compute = at::kFloat;  // also the wire dtype of parameters and gradients
  Reduction reduction = Reduction::kTree;

  // Requires a validated config.
  static Strategy create(const Config& config);
};

}  // namespace lockstep::core
