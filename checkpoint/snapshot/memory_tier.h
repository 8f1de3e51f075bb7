// Snapshots of one rank in host memory that outlives the process: the second tier of checkpoints.
//
//   begin --(copy, under the next forward and backward)--> copied --(to the buddy)--> complete
//     ^ returns at once        wait_read(): before the state may change
//
// Two slots alternate, so that a kill in the middle of a copy leaves the other one. Files of
// generation g lie in <folder>/g<g>-<nonce>/: rank_<r>.own.<slot> and, kept for another rank,
// rank_<r>.buddy.<slot>. A process of an older generation never writes into a newer one's files.
// Threads: one copier, started by create(); the methods belong to the training thread. Borrows the
// live state, the file system and the link; they outlive the tier.
#pragma once

#include <condition_variable>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/file_system.h"
#include "base/result.h"
#include "checkpoint/record/state.h"
#include "checkpoint/snapshot/memory_slot.h"

namespace lockstep::checkpoint {

// rank -> the rank that keeps its copy: a permutation that leaves the rank's node wherever no node
// has more than half of the ranks; the next rank where there is one node. Empty for one rank.
std::vector<int> buddies(const std::vector<int>& node_of_rank);

// Moves blocks between buddies, outside the training's collectives.
class BuddyLink {
 public:
  virtual ~BuddyLink() = default;
  // `out` goes to this rank's buddy; `in` comes from the rank whose copy this one keeps.
  // Collective; sizes agree on both sides. Errors: kPeerLost.
  virtual Result<void> exchange(std::span<const std::byte> out, std::span<std::byte> in) = 0;
};

struct MemoryTierOptions {
  std::filesystem::path folder;  // of this run on this host; exists
  SnapshotTag tag;               // run id, generation, nonce, rank, world size; the rest is begin's
  BuddyLink* link = nullptr;     // null: no buddy
  int source_rank = 0;           // whose copy this rank keeps
  std::vector<int64_t> slot_bytes;  // SlotSize::file_bytes of every rank; with a link
};

struct SnapshotReport {  // of one finished snapshot, this rank's view
  int64_t step = 0, bytes = 0;
  std::string error;        // why it is not complete
  std::string buddy_error;  // why the buddy has none; no more is sent in this generation
  double copy_s = 0, buddy_s = 0;
};

class MemoryTier {
 public:
  // Makes the slots; the copier takes their memory while training begins. What does not fit fails
  // the snapshots, each with that reason. Errors: kIo.
  static Result<std::unique_ptr<MemoryTier>> create(MemoryTierOptions options,
                                                    FileSystem& file_system, StateSource& live);
  ~MemoryTier();  // waits for the snapshot under way

  // Starts the snapshot of `step` into the slot that does not hold `keep_step`, the newest one
  // that is complete on every rank (-1: none). `copy`: of that state, to be read in place of it;
  // it is destroyed once it was. Requires: not busy(); the live state does not change until
  // wait_read() returned.
  void begin(int64_t step, int64_t keep_step, int64_t committed_step, std::string trainer_state,
             std::unique_ptr<StateSource> copy = nullptr);
  void wait_read();
  bool busy() const;              // a snapshot is under way, its buddy's copy included
  int64_t complete_step() const;  // newest one that is held here now; -1: none
  std::vector<SnapshotReport> take_reports();
  void drain();
  // Waits, and removes this rank's files, then the folders that are empty. Warns on failure.
  void remove();

 private:
  struct Job {
    size_t slot;
    SnapshotTag tag;
    std::unique_ptr<StateSource> copy;  // null: the live state is read
  };
  MemoryTier(MemoryTierOptions options, FileSystem& file_system, StateSource& live);
  Result<void> make_slots();
  std::string take_memory();
  Result<void> make_pair(int rank, const char* kind, SlotSize size, std::vector<SlotFile>& pair);
  void run();
  SnapshotReport take(Job job);
  Result<void> send_to_buddy(size_t slot);
  std::filesystem::path generation_folder() const;

  const MemoryTierOptions options_;
  FileSystem& file_system_;
  StateSource& live_;
  const SlotSize size_;
  std::vector<SlotFile> own_, kept_;
  std::vector<std::filesystem::path> paths_;
  std::vector<std::byte> out_block_, in_block_;
  int64_t begun_steps_[2] = {-1, -1};  // by slot, the same on every rank; of the training thread
  bool buddy_broken_ = false;          // of the copier
  std::string no_memory_;              // likewise: why there is none for the slots

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::optional<Job> job_;
  bool busy_ = false, reading_ = false, stopping_ = false;
  int64_t complete_steps_[2] = {-1, -1};  // by slot, what is in it now
  std::vector<SnapshotReport> reports_;
  std::thread thread_;
};

// "g3-7f2a91": the folder of a generation's snapshots.
std::string snapshot_folder_name(int64_t generation, const std::string& nonce);

}  // namespace lockstep::checkpoint
