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

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "core/comm/wire_bytes.h"

namespace lockstep::core {

// One collective under way.
class Pending {
 public:
  virtual ~Pending() = default;
  // Errors: kPeerLost (a peer closed its connection), kTimeout, kAborted.
  virtual Result<void> wait() = 0;
};
using PendingPtr = std::unique_ptr<Pending>;

// One that could not begin.
class Failed : public Pending {
 public:
  explicit Failed(Error error) : error_(std::move(error)) {}
  Result<void> wait() override { return error_; }

 private:
  Error error_;
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int world_size() const = 0;

  // out [W * n] <- every rank's in [n], in rank order. Contiguous, same dtype. Counted as
  // `traffic`. Collective.
  virtual PendingPtr all_gather(at::Tensor out, at::Tensor in,
                                Traffic traffic = Traffic::kOther) = 0;
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

// A small key-value store shared by the ranks, for votes. Thread-safe.
class SharedStore {
 public:
  virtual ~SharedStore() = default;
  virtual Result<void> set(const std::string& key, const std::string& value) = 0;
  // Waits for the key. Errors: kTimeout, kPeerLost.
  virtual Result<std::string> get(const std::string& key, double timeout_s) = 0;
  // A key that is not there is fine. Errors: kPeerLost.
  virtual Result<void> remove(const std::string& key) = 0;
};

// From this process's environment (docs/ARCHITECTURE.md, "Rendezvous").
struct RendezvousOptions {
  int rank = 0, world_size = 1;
  int local_world_size = 0;  // ranks of a node: rank r is on node r / this; 0: all on one
  std::string store;   // "file:<path>", "agent:<path of its socket>" or "tcp:<host>:<port>"; unused
                       // when world_size is 1
  std::string prefix;  // keys of this generation: "g3-7f2a91"
  bool serve = true;   // rank 0 hosts the tcp store; false: somebody else does
  std::string bind_address;  // of this machine, for Gloo; empty: what `interface` says
  std::string interface =
      "lo";  // network interface for Gloo; "" = the one that has a route to the host's name
  double init_timeout_s = 60, timeout_s = 100;
  bool background = false;       // a second communicator, for a thread beside the training
  int shard_size = 0;            // consecutive ranks that share a copy of the state; 0: all
  at::Device device = at::kCPU;  // where this rank's tensors lie: NCCL for CUDA's, the current one
  bool device_shared = false;    // other ranks use the same one: through host memory, for NCCL does
                                 // not work there
  // Collective: what all ranks do once they are connected and before groups of them are, which
  // depend on the config. Its error is join's. Not called for a single rank.
  std::function<Result<void>(Communicator&, SharedStore&)> met;
};

// All ranks; those that share one copy of the state; and those that hold the same shard of another
// one, in the order of the copies. Borrowed.
struct Groups {
  Communicator* world;
  Communicator* shard;
  Communicator* copies;
  at::Device device = at::kCPU;  // what the ranks compute on
};

struct Membership {
  std::unique_ptr<Communicator> communicator;
  std::unique_ptr<SharedStore> store;
  std::unique_ptr<Communicator> background;     // null unless asked for and world_size > 1
  std::unique_ptr<Communicator> shard, copies;  // null: the same as communicator
  at::Device device = at::kCPU;
  Groups groups() const {
    return {communicator.get(), shard ? shard.get() : communicator.get(),
            copies ? copies.get() : communicator.get(), device};
  }
  // Of all groups together.
  WireBytes wire_bytes() const {
    WireBytes sum;
    for (const auto* group : {&communicator, &shard, &copies})
      if (*group) sum.add((*group)->wire_bytes());
    return sum;
  }
};
// Connects all ranks; returns when everybody is there. Errors: kTimeout, kPeerLost, kConfig, and
// those of `met`.
Result<Membership> join(const RendezvousOptions& options);

}  // namespace lockstep::core
