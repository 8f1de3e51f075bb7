// Keeps the next slots of one rank ready.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "data/loader/token_dataset.h"

namespace lockstep::data {

// A thread that keeps the next slots of one rank ready. Borrows the dataset and the clock.
// Thread: next() from one thread; wait_s() from any.
class SlotLoader {
 public:
  static constexpr int64_t kMaxPrefetch = 1024;
  // Serves, for each step from `first_step` on, `slots_of_rank` in that order. It never ends by
  // itself. Requires: 1 <= prefetch <= kMaxPrefetch (slots kept ready). An empty `slots_of_rank`
  // starts no thread.
  static std::unique_ptr<SlotLoader> create(const TokenDataset& dataset,
                                            std::vector<int64_t> slots_of_rank, int64_t first_step,
                                            int64_t prefetch, Clock& clock = system_clock());
  virtual ~SlotLoader() = default;
  // The next slot; the seconds waited for it are added to wait_s(). Errors: batch()'s, then the
  // same one again at every call; kBug when the rank has no slot.
  virtual Result<SlotBatch> next() = 0;
  virtual double wait_s() const = 0;
};

}  // namespace lockstep::data
