// The live bytes of one rank's tensor allocator by what they are for, and the highest sum that they
// reach. Filled by a walk through a training step (memory_walk.h) that holds and drops what the
// code of core/ allocates and frees, in the same order.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "base/check.h"

namespace lockstep::layout {

inline constexpr int64_t kFloat = 4;  // bytes of an fp32 number

enum class MemoryUse {
  kMaster,
  kOptimizer,
  kComputeCopy,
  kGathered,
  kJointParts,
  kExchange,
  kGradSums,
  kFold,
  kPoolIdle,
  kActivations,
  kWork,
  kHeadChunk,
  kUpdate,
  kTables,
  kShared,
  kCount,
};
inline constexpr size_t kMemoryUses = static_cast<size_t>(MemoryUse::kCount);

class MemoryLedger {
 public:
  using ByUse = std::array<int64_t, kMemoryUses>;

  void hold(MemoryUse use, int64_t bytes) {
    live_[static_cast<size_t>(use)] += bytes;
    total_ += bytes;
    if (total_ <= peak_total_) return;
    peak_total_ = total_;
    peak_ = live_;
    peak_moment_ = moment_;
  }
  void drop(MemoryUse use, int64_t bytes) {
    int64_t& live = live_[static_cast<size_t>(use)];
    LOCKSTEP_CHECK(bytes <= live, "drops ", bytes, " bytes of ", live, ", use ",
                   static_cast<int>(use));
    live -= bytes;
    total_ -= bytes;
  }
  // The same memory serves another use.
  void turn(MemoryUse from, MemoryUse to, int64_t bytes) {
    drop(from, bytes);
    hold(to, bytes);
  }

  // What the step does from now on: "backward of block", 3.
  struct Moment {
    const char* doing = "start";
    int64_t layer = -1;  // -1: of no layer
  };
  void at(const char* doing, int64_t layer = -1) { moment_ = {doing, layer}; }

  int64_t live(MemoryUse use) const { return live_[static_cast<size_t>(use)]; }
  int64_t peak_total() const { return peak_total_; }
  const ByUse& peak() const { return peak_; }
  const Moment& peak_moment() const { return peak_moment_; }

 private:
  ByUse live_{}, peak_{};
  int64_t total_ = 0, peak_total_ = 0;
  Moment moment_, peak_moment_;
};

// Memory that is dropped at the end of a scope, as a local tensor is.
class Held {
 public:
  Held(MemoryLedger& ledger, MemoryUse use, int64_t bytes = 0) : ledger_(ledger), use_(use) {
    add(bytes);
  }
  ~Held() { ledger_.drop(use_, bytes_); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  void add(int64_t bytes) {
    ledger_.hold(use_, bytes);
    bytes_ += bytes;
  }
  int64_t bytes() const { return bytes_; }
  void release(int64_t bytes) {
    ledger_.drop(use_, bytes);
    bytes_ -= bytes;
  }

 private:
  MemoryLedger& ledger_;
  MemoryUse use_;
  int64_t bytes_ = 0;
};

}  // namespace lockstep::layout
