// Fills state from snapshots that the nodes hold in memory.
#pragma once

#include <cstdint>
#include <vector>

#include "base/file_system.h"
#include "checkpoint/record/state.h"
#include "checkpoint/snapshot/memory_inventory.h"
#include "core/comm/communicator.h"
#include "core/train/memory_place.h"

namespace lockstep::core {

struct SnapshotLoad {
  int64_t local_bytes = 0;    // read from this node's memory
  int64_t fetched_bytes = 0;  // from other nodes
};
// Fills `targets`. What another node holds is asked of its ranks, in bounded rounds. Collective,
// also for a rank that fails. Errors: kConfig (another model), kIo, kCorrupt, communication.
Result<SnapshotLoad> load_snapshot(FileSystem& file_system, const MemoryPlace& place,
                                   const checkpoint::Snapshot& snapshot, Communicator& comm,
                                   const std::vector<checkpoint::LiveTarget>& targets);

}  // namespace lockstep::core
