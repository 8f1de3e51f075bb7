// The wait for ranks that no agent watches (srun's and torchrun's), before they meet over Gloo:
// there a rank that waits looks at nothing else, and in the end it names no rank.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <functional>

#include "base/clock.h"
#include "base/result.h"

namespace lockstep::core {

struct RollCall {
  Clock& clock;
  int rank, world_size;
  double timeout_s;
  std::function<bool()> asked_to_stop;  // may be null
};
using ConnectStore = std::function<c10::intrusive_ptr<c10d::Store>(double timeout_s)>;

// Connects to the store and returns it once every rank has come to it. `connect` may throw what
// c10d throws; it is called again until it does not. Collective.
// Errors: kPeerLost (it names the ranks that did not come within `timeout_s`), kAborted (this rank
// was asked to stop).
Result<c10::intrusive_ptr<c10d::Store>> call_roll(const RollCall& call,
                                                  const ConnectStore& connect);

}  // namespace lockstep::core
