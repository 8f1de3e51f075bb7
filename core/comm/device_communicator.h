// Communicators whose tensors may lie on a device. Collectives of host tensors go to the
// communicator that they are made from (Gloo), which they own.
//
// A collective of device tensors begins after what the caller's current stream was given before it,
// and wait() returns on the host when it is done: what is launched afterwards sees its result. So a
// collective overlaps with what was launched between the two.
#pragma once

#include <memory>

#include "core/comm/communicator.h"

namespace lockstep::core {

// Over the devices' own library, NCCL; not in a build for the CPU alone. Gathers, and exchanges
// with sums, go each on a communicator and a stream of their own. Every wait polls, with a
// deadline; after a failure or a missed one a thread of its own aborts NCCL's communicator, which
// is never destroyed, and whatever else waits on it fails. Needs one device for each rank, the
// current one. `node_of_rank`: for counting bytes. Collective. Errors: kPeerLost.
Result<std::unique_ptr<Communicator>> connect_devices(std::unique_ptr<Communicator> host,
                                                      std::vector<int> node_of_rank,
                                                      double init_timeout_s, double timeout_s);

// Through host memory: for ranks that share a device, where that does not work.
std::unique_ptr<Communicator> stage_through_host(std::shared_ptr<Communicator> host);

}  // namespace lockstep::core
