// Ranks as threads whose tensors lie on a device: what they exchange is staged through the host.
#pragma once

#include <memory>
#include <vector>

#include "core/comm/device_communicator.h"
#include "tests/support/thread_group.h"

namespace lockstep::core {

// The groups of a rank whose tensors lie on `device`; the communicators for it go to `staged`.
inline Groups on_device(Groups groups, at::Device device,
                        std::vector<std::unique_ptr<Communicator>>& staged) {
  groups.device = device;
  if (device.is_cuda())
    for (Communicator** one : {&groups.world, &groups.shard, &groups.copies}) {
      std::shared_ptr<Communicator> borrowed(*one, [](Communicator*) {});
      staged.push_back(stage_through_host(std::move(borrowed)));
      *one = staged.back().get();
    }
  return groups;
}

}  // namespace lockstep::core
