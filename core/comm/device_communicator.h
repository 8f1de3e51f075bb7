// Communicators whose tensors may lie on a device. Collectives of host tensors go to the
// communicator that they are made from (Gloo), which they own.
//
// A collective of device tensors begins after what the caller's current stream was given before it,
// and wait() returns on the host when it is done: what is launched afterwards sees its result. So a
// collective overlaps with what was launched between the two.
#pragma once

#include <memory>
#include <vector>

#include "core/comm/communicator.h"
#include "core/comm/nccl_calls.h"
#include "core/device/device.h"

namespace lockstep::core {

// The collectives of device tensors that a group has. Each kind is a link: a communicator of
// NCCL's with a stream, so that the kinds run side by side.
struct DeviceLinks {
  bool gathers = true;
  bool exchanges = true;  // and sums
  int count() const { return gathers + exchanges; }
};

struct DeviceGroup {
  std::vector<int> node_of_rank;  // for counting bytes
  DeviceLinks links;
  int ctas_of_link;  // blocks of a kernel at most: what it takes from those that compute
  double init_timeout_s, timeout_s;
};

// Over the devices' own library; `host` itself where the group has no links. Every wait polls, with
// a deadline; after a failure or a missed one a thread of its own aborts NCCL's communicator, which
// is never touched again, and whatever else waits on it fails. Buffers of what failed are never
// freed: a kernel may still write there. In the end a link that has not failed waits for the other
// ranks' end, for ten seconds at most. Needs one device for each rank, the current one of `device`.
// Borrows `nccl` and `device` for ever. Collective. Errors: kPeerLost.
Result<std::unique_ptr<Communicator>> connect_devices(Nccl& nccl, const Device& device,
                                                      std::unique_ptr<Communicator> host,
                                                      DeviceGroup group);

// Through host memory: for ranks that share a device, where that does not work.
std::unique_ptr<Communicator> stage_through_host(std::shared_ptr<Communicator> host);

}  // namespace lockstep::core
