// A communicator among ranks of one machine that moves bytes through memory that they share: the
// sender's thread copies its part into a region of its own, the receiver's copies it out when it
// waits for it. No connection, no helper threads, no more than two copies.
#pragma once

#include <memory>

#include "core/comm/communicator.h"

namespace lockstep::core {

// Over `group`, which does what is not a copy (all_reduce_sum). Where the ranks cannot map each
// other's memory, `group` itself, with a line in the log. Host tensors. Every wait has a deadline
// of `timeout_s` and ends soon after a rank that it waits for has died. Collective. Errors: those
// of Pending::wait.
Result<std::unique_ptr<Communicator>> share_memory(std::unique_ptr<Communicator> group,
                                                   double timeout_s);

}  // namespace lockstep::core
