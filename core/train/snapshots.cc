#include "core/train/snapshots.h"

#include <ATen/ops/empty.h>

#include <cstring>

#include "base/clock.h"
#include "base/host_memory.h"
#include "base/log.h"
#include "core/comm/gather_words.h"
#include "core/comm/word_merge.h"
#include "core/train/agreement.h"

namespace lockstep::core {
namespace {

class ConnectedLink final : public checkpoint::BuddyLink {
 public:
  explicit ConnectedLink(Buddies& buddies) : buddies_(buddies) {}

  // Through tensors of its own: a message that failed may still hold them.
  Result<void> exchange(std::span<const std::byte> out, std::span<std::byte> in) override {
    at::Tensor sent = at::empty({static_cast<int64_t>(out.size())}, at::kByte);
    at::Tensor got = at::empty({static_cast<int64_t>(in.size())}, at::kByte);
    std::memcpy(sent.data_ptr(), out.data(), out.size());
    auto done = buddies_.exchange(sent, got);
    if (!done.ok()) return done.error().in("sending a snapshot to a buddy");
    std::memcpy(in.data(), got.data_ptr(), in.size());
    return {};
  }

 private:
  Buddies& buddies_;
};

int source_of(const std::vector<int>& buddy_of_rank, int rank) {
  return static_cast<int>(std::find(buddy_of_rank.begin(), buddy_of_rank.end(), rank) -
                          buddy_of_rank.begin());
}

std::string gib(int64_t bytes) { return fixed(static_cast<double>(bytes) / (1 << 30), 2) + " GiB"; }

}  // namespace

Result<std::unique_ptr<Snapshots>> Snapshots::create(Options options) {
  std::unique_ptr<Snapshots> s(new Snapshots(options));
  const MemoryPlace& place = options.place;
  const auto ranks = static_cast<int>(place.node_of_rank.size());
  if (options.config.checkpoint.buddy) s->buddy_of_rank_ = checkpoint::buddies(place.node_of_rank);

  const int64_t mine = checkpoint::slot_size(options.live.layout()).file_bytes;
  LOCKSTEP_TRY(const auto needs, gather_words(options.comm, {static_cast<uint64_t>(mine)}));
  const std::vector<int64_t> slot_bytes(needs.begin(), needs.end());
  LOCKSTEP_RETURN_IF_ERROR(all_well(options.store, options.comm, "memory/all_have_room",
                                    s->make_room(slot_bytes), place.timeout_s));

  checkpoint::MemoryTierOptions o;
  o.folder = place.folder;
  o.tag.run_id = place.run_id;
  o.tag.generation = options.resumed.next_generation;
  o.tag.nonce = options.resumed.nonce;
  o.tag.rank = place.rank;
  o.tag.world_size = ranks;
  if (!s->buddy_of_rank_.empty() && options.buddies != nullptr) {
    const int buddy = s->buddy_of_rank_[static_cast<size_t>(place.rank)];
    o.source_rank = source_of(s->buddy_of_rank_, place.rank);
    o.slot_bytes = slot_bytes;
    LOCKSTEP_RETURN_IF_ERROR(options.buddies->connect(o.source_rank));
    s->link_ = std::make_unique<ConnectedLink>(*options.buddies);
    o.link = s->link_.get();
    const bool other = place.node_of_rank[static_cast<size_t>(buddy)] != place.node();
    log_info("snapshots are copied to rank ", buddy,
             other ? " on another node" : " on the same node");
  }
  LOCKSTEP_TRY(s->tier_, checkpoint::MemoryTier::create(o, options.file_system, options.live));
  return s;
}

// The lowest rank of each node looks for all of them, before any of them takes memory.
Result<void> Snapshots::make_room(const std::vector<int64_t>& slot_bytes) {
  const MemoryPlace& place = options_.place;
  const std::string key = text("memory/room/", place.node());
  older_left_ = !options_.resumed.snapshot_folder.empty();
  if (place.leads()) {
    int64_t need = 0;
    for (const int r : place.ranks_on(place.node())) {
      need += 2 * slot_bytes[static_cast<size_t>(r)];
      if (!buddy_of_rank_.empty())
        need += 2 * slot_bytes[static_cast<size_t>(source_of(buddy_of_rank_, r))];
    }
    const auto room = [&] {
      const auto free = options_.file_system.free_bytes(place.folder);
      const int64_t available = available_memory_bytes();
      const int64_t in_folder = free.ok() ? free.value() : 0;
      return available < 0 ? in_folder : std::min(in_folder, available);
    };
    const auto drop = [&](const std::string& keep) {
      return checkpoint::remove_older_snapshots(options_.file_system, place.folder,
                                                options_.resumed.next_generation, keep);
    };
    Result<void> dropped = drop(options_.resumed.snapshot_folder);
    if (dropped.ok() && older_left_ && room() < need) {
      log_warning(
          "there is too little memory to keep the snapshot that the run resumed from; until the "
          "next snapshot a failure falls back to the disk");
      dropped = drop("");
    }
    if (!dropped.ok())
      log_warning("cannot free the memory of older snapshots: ", dropped.error().message);
    const int64_t there = room();
    LOCKSTEP_RETURN_IF_ERROR(options_.store.set(
        key, there >= need ? ""
                           : text("snapshots in memory need ", gib(need), " on this node, ",
                                  gib(there), " are free in ", place.folder.parent_path().string(),
                                  " and in memory; use more nodes, or checkpoint.memory_interval "
                                  "= 0")));
  }
  LOCKSTEP_TRY(const std::string wrong, options_.store.get(key, place.timeout_s));
  return wrong.empty() ? Result<void>() : Error{Code::kConfig, wrong};
}

void Snapshots::say(RankFlags& flags) const {
  flags.snapshot_busy = tier_->busy();
  flags.snapshot_step = tier_->complete_step();
}

void Snapshots::wait_read() {
  const double start = system_clock().monotonic_s();
  tier_->wait_read();
  totals_.stall_s += system_clock().monotonic_s() - start;
}

void Snapshots::after_step(int64_t step, const RankFlags& any, bool may_begin, int64_t disk_step,
                           const std::string& trainer_state,
                           const std::function<std::unique_ptr<checkpoint::StateSource>()>& copy) {
  take_reports();
  totals_.last_step = any.snapshot_step;
  if (older_left_ && any.snapshot_step >= 0) forget_older();
  if (!may_begin || step % options_.config.checkpoint.memory_interval != 0) return;
  if (any.snapshot_busy) {
    ++totals_.skipped;
    return;
  }
  begin(step, any, disk_step, trainer_state, copy());
}

void Snapshots::begin(int64_t step, const RankFlags& any, int64_t disk_step,
                      const std::string& trainer_state,
                      std::unique_ptr<checkpoint::StateSource> copy) {
  const double start = system_clock().monotonic_s();
  if (copy == nullptr) options_.live.freeze();
  tier_->begin(step, any.snapshot_step, disk_step, trainer_state, std::move(copy));
  totals_.stall_s += system_clock().monotonic_s() - start;
}

Result<bool> Snapshots::hold(
    int64_t step, const RankFlags& any, int64_t disk_step, const std::string& trainer_state,
    const std::function<std::unique_ptr<checkpoint::StateSource>()>& copy) {
  tier_->drain();
  begin(step, any, disk_step, trainer_state, copy());
  tier_->drain();
  take_reports();
  LOCKSTEP_TRY(const bool is_lost, any_says(options_.comm, tier_->complete_step() != step));
  if (!is_lost) totals_.last_step = step;
  return !is_lost;
}

void Snapshots::take_reports() {
  for (const checkpoint::SnapshotReport& report : tier_->take_reports()) {
    totals_.copy_s += report.copy_s;
    totals_.buddy_s += report.buddy_s;
    ++(report.error.empty() ? totals_.complete : totals_.failed);
    if (!report.error.empty())
      log_warning("the snapshot of step ", report.step, " failed: ", report.error);
    if (!report.buddy_error.empty())
      log_warning("snapshots are no longer copied to the buddy rank: ", report.buddy_error);
  }
}

void Snapshots::forget_older() {
  older_left_ = false;
  if (!options_.place.leads()) return;
  const auto removed = checkpoint::remove_older_snapshots(
      options_.file_system, options_.place.folder, options_.resumed.next_generation, "");
  if (!removed.ok())
    log_warning("cannot free the memory of older snapshots: ", removed.error().message);
}

}  // namespace lockstep::core
