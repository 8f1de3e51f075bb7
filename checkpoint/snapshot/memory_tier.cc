#include "checkpoint/snapshot/memory_tier.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"

namespace lockstep::checkpoint {
namespace {

constexpr int64_t kExchangeBytes = int64_t{4} << 20;  // of one exchange between buddies

int64_t bytes_at(int64_t offset, int64_t total) {
  return std::clamp<int64_t>(total - offset, 0, kExchangeBytes);
}

}  // namespace

// Ranks in node order, moved on by the size of the largest node: that leaves every node.
std::vector<int> buddies(const std::vector<int>& node_of_rank) {
  const size_t ranks = node_of_rank.size();
  if (ranks < 2) return {};
  std::map<int, std::vector<int>> by_node;
  for (size_t r = 0; r < ranks; ++r) by_node[node_of_rank[r]].push_back(static_cast<int>(r));
  std::vector<int> line;
  size_t largest = 1;
  for (const auto& [node, members] : by_node) {
    line.insert(line.end(), members.begin(), members.end());
    largest = std::max(largest, members.size());
  }
  const size_t shift = by_node.size() > 1 ? largest : 1;
  std::vector<int> buddy(ranks);
  for (size_t i = 0; i < ranks; ++i)
    buddy[static_cast<size_t>(line[i])] = line[(i + shift) % ranks];
  std::vector<bool> kept(ranks);
  for (size_t r = 0; r < ranks; ++r) {
    const auto by = static_cast<size_t>(buddy[r]);
    LOCKSTEP_CHECK(by != r && !kept[by], "rank ", by, " keeps the copy of rank ", r,
                   ", and its own or another one");
    kept[by] = true;
  }
  return buddy;
}

std::string snapshot_folder_name(int64_t generation, const std::string& nonce) {
  return text("g", generation, "-", nonce);
}

MemoryTier::MemoryTier(MemoryTierOptions options, FileSystem& file_system, StateSource& live)
    : options_(std::move(options)),
      file_system_(file_system),
      live_(live),
      size_(slot_size(live.layout())) {}

Result<std::unique_ptr<MemoryTier>> MemoryTier::create(MemoryTierOptions options,
                                                       FileSystem& file_system, StateSource& live) {
  std::unique_ptr<MemoryTier> tier(new MemoryTier(std::move(options), file_system, live));
  LOCKSTEP_RETURN_IF_ERROR(tier->make_slots());
  tier->thread_ = std::thread([t = tier.get()] { t->run(); });
  return tier;
}

MemoryTier::~MemoryTier() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

std::filesystem::path MemoryTier::generation_folder() const {
  return options_.folder / snapshot_folder_name(options_.tag.generation, options_.tag.nonce);
}

Result<void> MemoryTier::make_slots() {
  LOCKSTEP_RETURN_IF_ERROR(file_system_.make_directories(generation_folder()));
  LOCKSTEP_RETURN_IF_ERROR(make_pair(options_.tag.rank, "own", size_, own_));
  if (options_.link == nullptr) return {};
  const auto ranks = std::ssize(options_.slot_bytes);
  LOCKSTEP_CHECK(options_.source_rank >= 0 && options_.source_rank < ranks &&
                     options_.source_rank != options_.tag.rank && options_.tag.rank < ranks,
                 "rank ", options_.tag.rank, " keeps the copy of rank ", options_.source_rank,
                 " of ", ranks);
  LOCKSTEP_CHECK(options_.slot_bytes[static_cast<size_t>(options_.tag.rank)] == size_.file_bytes,
                 "rank ", options_.tag.rank, " has a slot of ", size_.file_bytes,
                 " bytes, and told of another");
  out_block_.resize(static_cast<size_t>(kExchangeBytes));
  in_block_.resize(static_cast<size_t>(kExchangeBytes));
  const int64_t kept = options_.slot_bytes[static_cast<size_t>(options_.source_rank)];
  return make_pair(options_.source_rank, "buddy", {0, kept}, kept_);
}

Result<void> MemoryTier::make_pair(int rank, const char* kind, SlotSize size,
                                   std::vector<SlotFile>& pair) {
  for (int slot = 0; slot < 2; ++slot) {
    paths_.push_back(generation_folder() / text("rank_", rank, ".", kind, ".", slot));
    LOCKSTEP_TRY(SlotFile file, SlotFile::create(file_system_, paths_.back(), size));
    pair.push_back(std::move(file));
  }
  return {};
}

void MemoryTier::begin(int64_t step, int64_t keep_step, int64_t committed_step,
                       std::string trainer_state, std::unique_ptr<StateSource> copy) {
  const size_t slot = begun_steps_[0] == keep_step && keep_step >= 0 ? 1 : 0;
  LOCKSTEP_CHECK(step >= 0 && (keep_step < 0 || begun_steps_[1 - slot] == keep_step), "step ", step,
                 " would be written over step ", keep_step, ": slots have ", begun_steps_[0],
                 " and ", begun_steps_[1]);
  begun_steps_[slot] = step;
  const std::lock_guard lock(mutex_);
  LOCKSTEP_CHECK(!busy_, "a snapshot of step ", step, " begins while another one is being taken");
  reading_ = copy == nullptr;
  job_ = Job{slot, options_.tag, std::move(copy)};
  job_->tag.step = step;
  job_->tag.committed_step = committed_step;
  job_->tag.trainer_state = std::move(trainer_state);
  complete_steps_[slot] = -1;
  busy_ = true;
  changed_.notify_all();
}

void MemoryTier::wait_read() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !reading_; });
}

bool MemoryTier::busy() const {
  const std::lock_guard lock(mutex_);
  return busy_;
}

int64_t MemoryTier::complete_step() const {
  const std::lock_guard lock(mutex_);
  return std::max(complete_steps_[0], complete_steps_[1]);
}

std::vector<SnapshotReport> MemoryTier::take_reports() {
  const std::lock_guard lock(mutex_);
  return std::exchange(reports_, {});
}

void MemoryTier::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !busy_; });
}

void MemoryTier::remove() {
  drain();
  for (const auto& path : paths_)
    if (auto removed = file_system_.remove(path); !removed.ok())
      log_warning("cannot free snapshot memory: ", removed.error().message);
  // The last rank of the host finds them empty.
  if (file_system_.remove(generation_folder()).ok()) (void)file_system_.remove(options_.folder);
}

// Why it could not; empty: it could.
std::string MemoryTier::take_memory() {
  for (std::vector<SlotFile>* pair : {&own_, &kept_})
    for (SlotFile& slot : *pair)
      if (const auto taken = slot.take_memory(); !taken.ok()) {
        const double gib = static_cast<double>(slot.size_bytes()) / (1 << 30);
        return text("cannot get memory for two snapshots of ", fixed(gib, 2),
                    " GiB: ", taken.error().message);
      }
  return "";
}

void MemoryTier::run() {
  no_memory_ = take_memory();
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || job_; });
    if (!job_) return;
    Job job = *std::exchange(job_, std::nullopt);
    const size_t slot = job.slot;
    lock.unlock();
    SnapshotReport report = take(std::move(job));
    lock.lock();
    LOCKSTEP_CHECK(busy_ && !reading_ && complete_steps_[slot] < 0, "slot ", slot, " has step ",
                   complete_steps_[slot], " when step ", report.step, " ends, and the state is ",
                   reading_ ? "" : "not ", "read");
    if (report.error.empty()) complete_steps_[slot] = report.step;
    reports_.push_back(std::move(report));
    busy_ = false;
    changed_.notify_all();
  }
}

SnapshotReport MemoryTier::take(Job job) {
  SnapshotReport report{
      .step = job.tag.step, .bytes = size_.file_bytes, .error = {}, .buddy_error = {}};
  const double start_s = system_clock().monotonic_s();
  const auto read = [this] {
    const std::lock_guard lock(mutex_);
    reading_ = false;
    changed_.notify_all();
  };
  StateSource& state = job.copy ? *job.copy : live_;
  Result<void> written = no_memory_.empty() ? own_[job.slot].write(job.tag, state, read)
                                            : Error{Code::kNoSpace, no_memory_};
  if (!no_memory_.empty()) read();
  job.copy.reset();
  const double copied_s = system_clock().monotonic_s();
  report.copy_s = copied_s - start_s;
  if (!written.ok()) report.error = written.error().message;
  if (options_.link == nullptr || buddy_broken_) return report;
  // Also after a failed copy: the exchange is collective, and an incomplete slot says what it is.
  if (auto sent = send_to_buddy(job.slot); !sent.ok()) {
    buddy_broken_ = true;
    report.buddy_error = sent.error().message;
  }
  report.buddy_s = system_clock().monotonic_s() - copied_s;
  return report;
}

// The slot's bytes in equal blocks, as many rounds on every rank; `complete` arrives in the first
// block and is put in place after the last.
Result<void> MemoryTier::send_to_buddy(size_t slot) {
  SlotFile &mine = own_[slot], &theirs = kept_[slot];
  const int64_t most = *std::max_element(options_.slot_bytes.begin(), options_.slot_bytes.end());
  uint64_t complete = 0;
  Result<void> failed;  // of a file; the rounds go on, as the others count on them
  const auto note = [&](const Result<void>& done) {
    if (failed.ok() && !done.ok()) failed = done;
  };
  note(theirs.set_complete(0));
  for (int64_t at = 0; at < most; at += kExchangeBytes) {
    const auto out =
        std::span(out_block_).first(static_cast<size_t>(bytes_at(at, mine.size_bytes())));
    const auto in =
        std::span(in_block_).first(static_cast<size_t>(bytes_at(at, theirs.size_bytes())));
    note(mine.read_raw(out, at));
    LOCKSTEP_RETURN_IF_ERROR(options_.link->exchange(out, in));
    if (at == 0) {
      std::memcpy(&complete, in.data() + kSlotCompleteOffset, sizeof complete);
      std::memset(in.data() + kSlotCompleteOffset, 0, sizeof complete);
    }
    note(theirs.write_raw(in, at));
  }
  LOCKSTEP_RETURN_IF_ERROR(failed);
  return theirs.set_complete(complete);
}

}  // namespace lockstep::checkpoint
