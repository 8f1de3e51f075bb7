// How the ranks of a generation find each other, and what each of them then has.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/comm/buddies.h"
#include "core/comm/communicator.h"
#include "core/comm/nccl_calls.h"
#include "core/comm/rank_facts.h"
#include "core/comm/shared_store.h"
#include "core/comm/transport.h"
#include "core/comm/two_legs.h"
#include "layout/shard_layout.h"

namespace lockstep::core {

// From this process's environment (docs/ARCHITECTURE.md, "Rendezvous").
struct RendezvousOptions {
  int rank = 0, world_size = 1;
  int local_rank = 0;        // its place among the ranks of its node
  int local_world_size = 0;  // their number, as far as this rank knows; 0: all ranks
  std::string store;   // "file:<path>", "agent:<path of its socket>" or "tcp:<host>:<port>"; unused
                       // when world_size is 1
  std::string prefix;  // keys of this generation: "g3-7f2a91"
  bool serve = true;   // rank 0 hosts the tcp store; false: somebody else does
  std::string bind_address;  // of this machine, for Gloo; empty: what `interface` says
  std::string interface =
      "lo";  // network interface for Gloo; "" = the one that has a route to the host's name
  double init_timeout_s = 60, timeout_s = 100;
  std::function<bool()> asked_to_stop;  // looked at while ranks are awaited that no agent watches
  bool buddies = false;                 // ways for a thread beside the training
  bool native_sums = false;             // gradients are added by the backend (training.reduction)
  bool all_exchange = false;  // all ranks exchange tensors, whichever share a copy: Muon's do
  // The groups' sizes, once it is known how the ranks lie on nodes; none: one of all ranks.
  std::function<layout::GroupSizes(int world_size, const layout::NodeRanks&)> sizes;
  at::Device device = at::kCPU;  // where this rank's tensors lie; the current one
  // What this rank tells the others of itself, so that all choose how they exchange tensors:
  // own_facts(device). A test says something else.
  RankFacts facts;
  Nccl* nccl = nullptr;  // that their devices use; null: this build's library
  // Connects this rank with what is used in the place of `store`; null: that.
  std::function<c10::intrusive_ptr<c10d::Store>()> connect_store;
  // Collective: what all ranks do once they are connected and before groups of them, and ways
  // between devices, are: those depend on the config. Its error is join's. Not called for a single
  // rank.
  std::function<Result<void>(Communicator&, SharedStore&)> met;
};

struct Membership {
  std::unique_ptr<Communicator> communicator;
  std::unique_ptr<SharedStore> store;
  std::unique_ptr<Buddies> buddies;            // null unless asked for and world_size > 1
  std::unique_ptr<Communicator> group, peers;  // null: the same as communicator
  std::unique_ptr<CopyGroups> copy_groups;     // borrows them
  at::Device device = at::kCPU;
  std::optional<Transport> transport;  // of all ranks' tensors; none for a single rank
  layout::NodeRanks nodes = 0;         // as Groups has it
  std::vector<int> node_of_rank;       // of all ranks; of a single one it may be empty
  Groups groups() const {
    return {communicator.get(),
            group ? group.get() : communicator.get(),
            peers ? peers.get() : communicator.get(),
            &copy_groups->shard(),
            &copy_groups->copies(),
            device,
            nodes};
  }
  // Of all groups together.
  WireBytes wire_bytes() const {
    WireBytes sum;
    for (const auto* one : {&communicator, &group, &peers})
      if (*one) sum.add((*one)->wire_bytes());
    return sum;
  }
};
// Of this process, which computes on `device`, the current one. `host`: this machine's name.
RankFacts own_facts(at::Device device, const std::string& host);

// By rank, for people. Errors: those of SharedStore::get.
Result<std::vector<std::string>> hosts_of_ranks(SharedStore& store, double timeout_s);

// Connects all ranks; returns when everybody is there. What it costs a rank does not depend on
// their number but for rank 0, which hears of all, in groups that exchange host tensors over Gloo,
// and where a communicator of a device's library connects them (docs/SCALING.md).
//   1. all of them meet over Gloo, along a tree (tree_communicator.h)
//   2. rank 0 hears what they are, and tells them what they agree on (rank_agreement.h): a
//      transport and on which nodes they are, or one error
//   3. `met`
//   4. the ways between devices, and the groups
// Errors: kTimeout, kPeerLost, kConfig, and those of `met`.
Result<Membership> join(const RendezvousOptions& options);

}  // namespace lockstep::core
