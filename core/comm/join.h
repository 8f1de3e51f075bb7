// How the ranks of a generation find each other, and what each of them then has.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/comm/communicator.h"
#include "core/comm/shared_store.h"

namespace lockstep::core {

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
  at::Device device = at::kCPU;  // where this rank's tensors lie; the current one
  bool device_shared = false;    // other ranks use the same one: then through host memory
  // Collective: what all ranks do once they are connected and before groups of them are, which
  // depend on the config. Its error is join's. Not called for a single rank.
  std::function<Result<void>(Communicator&, SharedStore&)> met;
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
