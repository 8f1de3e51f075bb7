// Ranks as threads whose tensors lie on a device: what they exchange is staged through the host.
#pragma once

#include <memory>
#include <vector>

#include "core/comm/device_communicator.h"
#include "tests/support/thread_group.h"

namespace lockstep::core {

// What groups through host memory consist of.
struct Staged {
  std::vector<std::unique_ptr<Communicator>> communicators;
  std::unique_ptr<CopyGroups> copy_groups;
};

inline Groups through_host(Groups groups, Staged& staged) {
  for (Communicator** one : {&groups.world, &groups.group, &groups.peers}) {
    std::shared_ptr<Communicator> borrowed(*one, [](Communicator*) {});
    staged.communicators.push_back(stage_through_host(std::move(borrowed)));
    *one = staged.communicators.back().get();
  }
  staged.copy_groups =
      std::make_unique<CopyGroups>(*groups.group, *groups.peers, groups.shard->world_size());
  groups.shard = &staged.copy_groups->shard();
  groups.copies = &staged.copy_groups->copies();
  return groups;
}

// The groups of a rank whose tensors lie on `device`.
inline Groups on_device(Groups groups, at::Device device, Staged& staged) {
  groups.device = device;
  return device.is_cuda() ? through_host(groups, staged) : groups;
}

}  // namespace lockstep::core
