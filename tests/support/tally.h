// What somebody asked for of disks and of the ranks' store, counted.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace lockstep::test_support {

enum class Cost {
  // clang-format off
  kOpens, kCreates, kSyncs, kStats, kMkdirs, kLists, kRenames, kRemoves, kReads, kWrites,  // calls
  kReadBytes, kWrittenBytes,
  kRequests, kStoreBytes,  // of the ranks' store
  kMessageBytes,           // from other ranks
  // clang-format on
};
inline constexpr size_t kCosts = 15;
inline constexpr std::array<const char*, kCosts> kCostNames = {
    "opens",      "creates",       "fsyncs",         "stats",       "mkdirs",
    "listings",   "renames",       "removes",        "reads",       "writes",
    "bytes read", "bytes written", "store requests", "store bytes", "message bytes"};

class Tally {
 public:
  void add(Cost cost, size_t n = 1) { counts_[static_cast<size_t>(cost)] += n; }
  int64_t of(Cost cost) const {
    return static_cast<int64_t>(counts_[static_cast<size_t>(cost)].load());
  }
  // Calls to the file system: each is a wait where that is slow.
  int64_t calls() const {
    int64_t sum = 0;
    for (auto cost = Cost::kOpens; cost <= Cost::kWrites; cost = Cost(static_cast<int>(cost) + 1))
      sum += of(cost);
    return sum;
  }
  void reset() {
    for (auto& count : counts_) count = 0;
  }

 private:
  std::array<std::atomic<size_t>, kCosts> counts_{};
};

}  // namespace lockstep::test_support
