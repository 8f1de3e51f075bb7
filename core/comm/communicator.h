// How ranks exchange bytes. Collectives move data and never add (docs/ARCHITECTURE.md, rule 3): the
// backend's algorithm, topology and channels then cannot change a bit. The one that adds exists
// for comparison only.
//
// Every wait has a deadline; every failure is an Error that names what was waited for. Buffers of
// an unfinished collective belong to it: it keeps them alive, they must not be reused after an
// error, and the process leaves by _exit.
// Thread: one thread issues collectives, in the same order on every rank.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/result.h"
#include "core/comm/wire_bytes.h"
#include "layout/shard_layout.h"

namespace lockstep::core {

// One collective under way.
class Pending {
 public:
  virtual ~Pending() = default;
  // Errors: kPeerLost (a peer closed its connection), kTimeout, kAborted.
  virtual Result<void> wait() = 0;
};
using PendingPtr = std::unique_ptr<Pending>;

// One that was done when it began.
class Done : public Pending {
 public:
  Result<void> wait() override { return {}; }
};

// One that could not begin.
class Failed : public Pending {
 public:
  explicit Failed(Error error) : error_(std::move(error)) {}
  Result<void> wait() override { return error_; }

 private:
  Error error_;
};

// Ranks that gather from each other.
class Gatherer {
 public:
  virtual ~Gatherer() = default;
  virtual int rank() const = 0;
  virtual int world_size() const = 0;

  // out [W * n] <- every rank's in [n], in rank order. Contiguous, same dtype; `in` may be its own
  // place in `out`. Counted as `traffic`. Collective.
  virtual PendingPtr all_gather(at::Tensor out, at::Tensor in,
                                Traffic traffic = Traffic::kOther) = 0;
};

class WordMerge;  // core/comm/word_merge.h

class Communicator : public Gatherer {
 public:
  // tensor <- rank 0's, where that costs less than a gather; else null. Contiguous, on the host.
  // Counted as other. Collective.
  virtual PendingPtr spread(at::Tensor /*tensor*/) { return nullptr; }
  // Whether words merge on their way, which costs less than a gather of them; and that: answer <-
  // what comes of every rank's `mine`. Both are words on the host. Counted as other. Collective.
  virtual bool merges() const { return false; }
  virtual PendingPtr merge(const WordMerge& /*how*/, at::Tensor /*mine*/, at::Tensor /*answer*/) {
    return nullptr;
  }
  // The same, of what `first` writes, where that can be said before it is done; else null. `first`
  // is waited for before this is.
  virtual PendingPtr all_gather_after(const Pending& /*first*/, at::Tensor /*out*/,
                                      at::Tensor /*in*/, Traffic /*traffic*/) {
    return nullptr;
  }
  // in is cut into W parts of in_counts elements, part r goes to rank r; out receives
  // out_counts[r] elements from rank r, in rank order. Counted as gradients. Collective.
  virtual PendingPtr all_to_all(at::Tensor out, std::vector<int64_t> out_counts, at::Tensor in,
                                std::vector<int64_t> in_counts) = 0;
  // tensor <- the backend's own sum over ranks: bits depend on the world size. For
  // training.reduction="native". Counted as gradients, as a ring in rank order would send them.
  virtual PendingPtr all_reduce_sum(at::Tensor tensor) = 0;
  // Received since the start, over all collectives that were issued.
  virtual WireBytes wire_bytes() const = 0;
};

// That an all_to_all among `ranks` is one: a count for each of them, which together are the tensor.
inline void check_counts(const at::Tensor& tensor, const std::vector<int64_t>& counts, int ranks,
                         const char* way) {
  int64_t sum = 0, least = 0;
  for (const int64_t n : counts) {
    sum += n;
    least = std::min(least, n);
  }
  LOCKSTEP_CHECK(std::ssize(counts) == ranks && least >= 0 && sum == tensor.numel(), way, ": ",
                 counts.size(), " counts for ", ranks, " ranks, the least ", least, ", together ",
                 sum, " of ", tensor.numel(), " elements");
}

// All ranks; those of a group, and those that have the same place in each group
// (layout/shard_layout.h), among whom gradients travel; those that share one copy of the state, in
// the order of its parts; and those that hold the same part of each copy. Borrowed.
struct Groups {
  Communicator* world;
  Communicator* group;
  Communicator* peers;
  Gatherer* shard;
  Gatherer* copies;
  at::Device device = at::kCPU;  // what the ranks compute on
  layout::NodeRanks nodes = 0;   // that the ranks are on
};

}  // namespace lockstep::core
