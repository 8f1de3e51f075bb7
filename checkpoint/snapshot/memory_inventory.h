// Which snapshots the hosts of a run still hold in memory, which of them can be used, and reading
// them at any world size.
//
//   look (each host) --> usable_snapshots (rank 0, over all hosts) --> plan_reads (each rank)
//
// Only look() and remove_older_snapshots() touch files; the rest are pure.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "base/result.h"
#include "checkpoint/record/catalog.h"
#include "checkpoint/record/state.h"
#include "checkpoint/snapshot/memory_slot.h"

namespace lockstep::checkpoint {

struct FoundSlot {
  std::string path;
  int rank = 0;        // whose state it is
  bool buddy = false;  // kept for a rank of another host
  SlotHeader header;
};
struct Inventory {  // of one host
  std::vector<FoundSlot> slots;
  std::vector<std::string> problems;  // damaged slots, each naming its file
  int64_t last_generation = -1;       // newest one that left a folder here
};
// All complete slots in `folder`, which may be missing. Errors: kIo of the folder.
Result<Inventory> look(FileSystem& file_system, const std::filesystem::path& folder,
                       uint64_t run_id);
std::string inventory_text(const Inventory& inventory);
// Errors: kCorrupt.
Result<Inventory> parse_inventory(const std::string& contents);

// A snapshot whose every part can be had.
struct Snapshot {
  struct Home {  // one place where a part lies
    int node = 0;
    bool buddy = false;
    std::string path;
    int64_t data_offset = 0;
  };
  Manifest whole;                        // files[r] is the part of rank r
  std::vector<std::vector<Home>> homes;  // by rank; own copies before those of buddies
};
std::string snapshot_text(const Snapshot& snapshot);
// Errors: kCorrupt.
Result<Snapshot> parse_snapshot(const std::string& contents);

// What the disk has, with which a snapshot must agree.
struct DiskState {
  int64_t step = -1, generation = -1;  // of the newest committed checkpoint
  int64_t newest_step = -1;            // of those with a manifest, damaged ones included
};
DiskState disk_state(const std::vector<CatalogEntry>& entries);

// Snapshots newer than the disk, best first: the newest generation, then the newest step. One that
// was taken when the disk had a newer checkpoint than now is left out: somebody took the run back.
// `passed_over` says why others are not usable, a line each.
std::vector<Snapshot> usable_snapshots(const std::vector<Inventory>& by_node, const DiskState& disk,
                                       std::vector<std::string>& passed_over);

// A run of bytes of one part and where it belongs.
struct PartRead {
  int rank = 0;        // whose part
  int64_t offset = 0;  // in its data
  std::span<std::byte> to;
};
// Everything the targets need, by interval intersection. Errors: kConfig where the snapshot is of
// another model, naming the tensor.
Result<std::vector<PartRead>> plan_reads(const Manifest& whole,
                                         const std::vector<LiveTarget>& targets);

// Removes the folders of generations below `generation` in `folder`, except `keep` (a folder's
// name, or ""). Errors: kIo.
Result<void> remove_older_snapshots(FileSystem& file_system, const std::filesystem::path& folder,
                                    int64_t generation, const std::string& keep);

}  // namespace lockstep::checkpoint
