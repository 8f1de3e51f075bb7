// A gather among all ranks whose bytes come into a group (layout/shard_layout.h) once: each rank
// brings in what its peers in the other groups have, then all of the group share it.
//
//   W = 4, G = 2, as rank 1 sees it: out in 4 parts
//     leg 1, from its peer, rank 3        . . 1 3
//     leg 2, from its neighbour, rank 0   0 2 1 3
#pragma once

#include <utility>

#include "core/comm/communicator.h"
#include "core/comm/single_communicator.h"

namespace lockstep::core {

class TwoLegGather : public Gatherer {
 public:
  TwoLegGather(Communicator& group, Communicator& peers) : group_(group), peers_(peers) {}
  // By part: the l-th of group g comes at l * groups + g (layout/shard_layout.h).
  int rank() const override { return group_.rank() * peers_.world_size() + peers_.rank(); }
  int world_size() const override { return group_.world_size() * peers_.world_size(); }
  // The second leg begins on the device, behind the first one, where the group can do that; else in
  // wait().
  PendingPtr all_gather(at::Tensor out, at::Tensor in, Traffic traffic) override;
  // The same, and what this rank brings in, [groups * n], lands in `joint`.
  PendingPtr all_gather_by(at::Tensor joint, at::Tensor out, at::Tensor in, Traffic traffic);
  // Leg 2 alone, of what leg 1 has left in every rank's `joint`.
  PendingPtr share(at::Tensor out, at::Tensor joint, Traffic traffic) {
    return group_.all_gather(std::move(out), std::move(joint), traffic);
  }

 private:
  Communicator& group_;
  Communicator& peers_;
};

// Who gathers with whom, where `shard_size` ranks share a copy of the state: 1, those of the group,
// or all. Borrows both.
class CopyGroups {
 public:
  CopyGroups(Communicator& group, Communicator& peers, int shard_size);
  CopyGroups(const CopyGroups&) = delete;
  CopyGroups& operator=(const CopyGroups&) = delete;
  // As Groups has them.
  Gatherer& shard() const { return *shard_; }
  Gatherer& copies() const { return *copies_; }

 private:
  SingleCommunicator alone_;
  TwoLegGather both_legs_;
  Gatherer *shard_, *copies_;
};

}  // namespace lockstep::core
