// The memory tiers of all ranks of one generation in one process, on pretended nodes.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>

#include "base/check.h"
#include "checkpoint/snapshot/memory_inventory.h"
#include "checkpoint/snapshot/memory_tier.h"
#include "tests/unit/checkpoint/world.h"

namespace lockstep::checkpoint::test_support {

inline constexpr uint64_t kRunId = 0x5eed;

// Ranks that are threads hand each other their blocks.
class Board {
 public:
  std::vector<std::byte> swap(int rank, int source, int64_t round, std::span<const std::byte> out) {
    std::unique_lock lock(mutex_);
    blocks_[{rank, round}].assign(out.begin(), out.end());
    changed_.notify_all();
    changed_.wait(lock, [&] { return blocks_.contains({source, round}); });
    return blocks_.extract({source, round}).mapped();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<int, int64_t>, std::vector<std::byte>> blocks_;
};

class BoardLink final : public BuddyLink {
 public:
  BoardLink(Board& board, int rank, int source) : board_(board), rank_(rank), source_(source) {}
  Result<void> exchange(std::span<const std::byte> out, std::span<std::byte> in) override {
    const auto block = board_.swap(rank_, source_, round_++, out);
    LOCKSTEP_CHECK(block.size() == in.size(), block.size(), " ", in.size());
    std::copy(block.begin(), block.end(), in.begin());
    return {};
  }

 private:
  Board& board_;
  const int rank_, source_;
  int64_t round_ = 0;
};

struct MemoryWorld {
  // Rank r lives on node_of_rank[r], whose folder is root / "node_<n>".
  MemoryWorld(FileSystem& file_system, const std::filesystem::path& root,
              std::vector<int> node_of_rank, int64_t generation = 1, bool buddy = false)
      : world_size(static_cast<int>(node_of_rank.size())) {
    const std::vector<int> to = buddy ? buddies(node_of_rank) : std::vector<int>();
    std::vector<int64_t> sizes;
    for (int rank = 0; rank < world_size; ++rank) {
      states.push_back(std::make_unique<RankState>(state_of(odd_model(), rank, world_size)));
      sources.push_back(std::make_unique<HostState>(states.back()->live()));
      sizes.push_back(slot_size(sources.back()->layout()).file_bytes);
    }
    for (int rank = 0; rank < world_size; ++rank) {
      MemoryTierOptions o;
      o.folder = root / text("node_", node_of_rank[static_cast<size_t>(rank)]);
      (void)file_system.make_directories(o.folder).ok();
      o.tag.run_id = kRunId;
      o.tag.generation = generation;
      o.tag.nonce = text("abc", generation);
      o.tag.rank = rank;
      o.tag.world_size = world_size;
      if (!to.empty()) {
        o.source_rank = static_cast<int>(std::find(to.begin(), to.end(), rank) - to.begin());
        links.push_back(std::make_unique<BoardLink>(board, rank, o.source_rank));
        o.link = links.back().get();
        o.slot_bytes = sizes;
      }
      auto tier = MemoryTier::create(o, file_system, *sources[static_cast<size_t>(rank)]);
      if (!tier.ok()) error = tier.error().message;
      if (!tier.ok()) return;
      tiers.push_back(std::move(tier).value());
    }
  }

  // As the trainer does it: the oldest step that all have is kept. Reports by rank.
  std::vector<SnapshotReport> snapshot(int64_t step, int64_t committed_step = -1) {
    int64_t keep = tiers.front()->complete_step();
    for (auto& tier : tiers) keep = std::min(keep, tier->complete_step());
    for (auto& state : states) state->fill(step);
    for (auto& tier : tiers) tier->begin(step, keep, committed_step, text("{\"step\":", step, "}"));
    for (auto& tier : tiers) tier->wait_read();
    for (auto& state : states) state->fill(-1);  // the copy is what counts from here on
    std::vector<SnapshotReport> reports;
    for (auto& tier : tiers) tier->drain();
    for (auto& tier : tiers) reports.push_back(tier->take_reports().at(0));
    return reports;
  }

  const int world_size;
  Board board;
  std::vector<std::unique_ptr<RankState>> states;
  std::vector<std::unique_ptr<HostState>> sources;
  std::vector<std::unique_ptr<BoardLink>> links;
  std::vector<std::unique_ptr<MemoryTier>> tiers;
  std::string error;
};

// What resuming would find on nodes 0 … nodes-1.
struct Found {
  std::vector<Snapshot> snapshots;
  std::vector<std::string> passed_over, problems;
};
inline Found find_snapshots(const std::filesystem::path& root, int nodes, DiskState disk = {},
                            uint64_t run_id = kRunId) {
  Found found;
  std::vector<Inventory> inventories;  // as rank 0 gets them
  for (int node = 0; node < nodes; ++node) {
    const auto inventory = look(posix_file_system(), root / text("node_", node), run_id).value();
    inventories.push_back(parse_inventory(inventory_text(inventory)).value());
    for (const auto& problem : inventories.back().problems) found.problems.push_back(problem);
  }
  for (const Snapshot& s : usable_snapshots(inventories, disk, found.passed_over))
    found.snapshots.push_back(parse_snapshot(snapshot_text(s)).value());
  return found;
}

// Loads a snapshot at another world size; "" or what is wrong with it.
inline std::string load_at(const Snapshot& snapshot, int world_size) {
  Fingerprints whole;
  std::string different;
  for (int rank = 0; rank < world_size; ++rank) {
    RankState state = state_of(odd_model(), rank, world_size);
    auto targets = state.targets();
    const auto reads = plan_reads(snapshot.whole, targets);
    if (!reads.ok()) return reads.error().message;
    for (const PartRead& read : reads.value()) {
      const Snapshot::Home& home = snapshot.homes[static_cast<size_t>(read.rank)].front();
      const auto file = posix_file_system().open(home.path).value();
      if (const auto done = file->read_at(read.to, home.data_offset + read.offset); !done.ok())
        return done.error().message;
    }
    for (const auto& [key, sum] : fingerprints(targets)) whole[key] += sum;
    different += state.difference(snapshot.whole.step);
  }
  const auto same = check_fingerprints(snapshot.whole, whole);
  return same.ok() ? different : same.error().message;
}

}  // namespace lockstep::checkpoint::test_support
