// Where the ranks of a run keep snapshots in memory, and what is there when they start: what they
// must agree on before anyone resumes. Ranks that see the same folder are on one node.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "checkpoint/snapshot/memory_inventory.h"
#include "config/config.h"
#include "core/comm/communicator.h"
#include "core/comm/shared_store.h"

namespace lockstep::core {

struct MemoryPlace {
  std::filesystem::path folder;   // of this run on this host: private, in memory
  uint64_t run_id = 0;            // of checkpoints/memory_id, in every slot
  std::vector<int> node_of_rank;  // numbered by their first rank
  int rank = 0;
  double timeout_s = 60;  // of a word in the store

  int node() const { return node_of_rank[static_cast<size_t>(rank)]; }
  std::vector<int> ranks_on(int node) const;
  bool leads() const { return ranks_on(node()).front() == rank; }  // its node's lowest rank
};

// Makes the folder. `checkpoint_place` is the absolute checkpoint folder, which with the random id
// that is kept in it names the memory's folder. Collective. Errors: kConfig, kIo, communication.
Result<MemoryPlace> find_memory_place(FileSystem& file_system, const Config& config,
                                      const std::filesystem::path& checkpoint_place,
                                      SharedStore& store, Communicator& comm);

// What every node holds, by node; elsewhere than on rank 0 nothing. Damaged slots are logged.
// Collective. Errors: communication.
Result<std::vector<checkpoint::Inventory>> take_inventory(FileSystem& file_system,
                                                          const MemoryPlace& place,
                                                          SharedStore& store);

}  // namespace lockstep::core
