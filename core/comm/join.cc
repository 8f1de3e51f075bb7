#include "core/comm/join.h"

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <thread>

#include "base/check.h"
#include "base/number.h"
#include "base/text.h"
#include "core/comm/agent_store.h"
#include "core/comm/device_communicator.h"
#include "core/comm/gloo_communicator.h"
#include "core/comm/node_communicator.h"
#include "core/comm/single_communicator.h"
#include "core/device/devices.h"

namespace lockstep::core {
namespace {

std::chrono::milliseconds to_ms(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

// May throw what c10d throws.
c10::intrusive_ptr<c10d::Store> connect_store(const RendezvousOptions& o, bool may_serve) {
  if (o.store.starts_with(kAgentStore))
    return make_agent_store(o.store.substr(kAgentStore.size()), o.prefix, to_ms(o.init_timeout_s));
  c10::intrusive_ptr<c10d::Store> store;
  if (o.store.starts_with("file:")) {
    store = c10::make_intrusive<c10d::FileStore>(o.store.substr(5), -1);
  } else {
    const size_t colon = o.store.rfind(':');
    c10d::TCPStoreOptions options;
    options.port = parse_number<uint16_t>(o.store.substr(colon + 1)).value();
    options.isServer = may_serve && o.serve && o.rank == 0;
    options.waitWorkers = false;
    options.timeout = to_ms(o.init_timeout_s);
    store = c10::make_intrusive<c10d::TCPStore>(o.store.substr(4, colon - 4), options);
  }
  store->setTimeout(to_ms(o.init_timeout_s));
  return c10::make_intrusive<c10d::PrefixStore>(o.prefix, store);
}

// A place in a group; its seat k is taken by rank first + k * stride of the run.
struct Seat {
  int rank, size;
  int first = 0, stride = 1;
};

// Of the group's ranks.
std::vector<int> nodes_of(const RendezvousOptions& o, Seat seat) {
  const int of_a_node = o.local_world_size > 0 ? o.local_world_size : o.world_size;
  std::vector<int> nodes;
  for (int k = 0; k < seat.size; ++k) nodes.push_back((seat.first + k * seat.stride) / of_a_node);
  return nodes;
}

// May throw what c10d throws.
std::unique_ptr<Communicator> connect_group(const RendezvousOptions& o, const std::string& prefix,
                                            Seat seat, int threads) {
  if (seat.size == 1) return std::make_unique<SingleCommunicator>();
  auto store = connect_store(o, /*may_serve=*/prefix == "gloo");
  return connect_gloo({seat.rank, seat.size, nodes_of(o, seat), o.bind_address, o.interface,
                       threads, o.init_timeout_s, o.timeout_s},
                      c10::make_intrusive<c10d::PrefixStore>(prefix, std::move(store)));
}

bool on_one_node(const std::vector<int>& nodes) {
  return std::count(nodes.begin(), nodes.end(), nodes.front()) == std::ssize(nodes);
}

// The same group by the shortest ways: memory inside a node, the devices' own for their tensors.
// Collective.
Result<std::unique_ptr<Communicator>> by_short_ways(const RendezvousOptions& o, Seat seat,
                                                    std::unique_ptr<Communicator> group) {
  if (seat.size == 1) return group;
  if (on_one_node(nodes_of(o, seat))) {
    LOCKSTEP_TRY(group, share_memory(std::move(group), o.timeout_s));
  }
  if (o.device.is_cpu()) return group;
  if (o.device_shared) return stage_through_host(std::move(group));
  if constexpr (!kCpuOnly)
    return connect_devices(std::move(group), nodes_of(o, seat), o.init_timeout_s, o.timeout_s);
  return group;
}

}  // namespace

Result<Membership> join(const RendezvousOptions& o) {
  if (o.world_size == 1)
    return Membership{std::make_unique<SingleCommunicator>(),
                      make_local_store(),
                      nullptr,
                      nullptr,
                      nullptr,
                      o.device};
  const bool known = o.store.starts_with("file:") || o.store.starts_with(kAgentStore) ||
                     (o.store.starts_with("tcp:") && o.store.find(':', 4) != std::string::npos);
  if (!known)
    return Error{Code::kConfig, text("the rendezvous store is \"", o.store,
                                     "\"; it must be file:PATH, agent:PATH or tcp:HOST:PORT")};
  try {
    const Seat all{o.rank, o.world_size};
    Membership m;
    m.device = o.device;
    const auto connect = [&o](const std::string& prefix, Seat seat) {
      return by_short_ways(o, seat, connect_group(o, prefix, seat, 2));
    };
    LOCKSTEP_TRY(m.communicator, connect("gloo", all));
    // Votes go over a connection of their own: a store call holds its connection's lock while it
    // waits.
    auto votes = c10::make_intrusive<c10d::PrefixStore>("votes", connect_store(o, false));
    m.store = share_store(std::move(votes));
    if (const auto met = o.met ? o.met(*m.communicator, *m.store) : Result<void>(); !met.ok()) {
      std::thread([group = std::move(m)] {}).detach();  // its end may wait for a silent peer
      return met.error();
    }
    if (o.background) m.background = connect_group(o, "gloo_background", all, 1);
    const int shard = o.shard_size == 0 ? o.world_size : o.shard_size;
    LOCKSTEP_CHECK(o.world_size % shard == 0, o.world_size, " ranks in groups of ", shard);
    const int group = o.rank / shard, place = o.rank % shard;
    if (shard < o.world_size) {
      LOCKSTEP_TRY(m.shard, connect(text("gloo_shard", group), {place, shard, group * shard}));
    }
    if (shard > 1) {
      LOCKSTEP_TRY(m.copies, connect(text("gloo_copies", place),
                                     {group, o.world_size / shard, place, shard}));
    }
    return m;
  } catch (const std::exception& e) {
    const std::string reason = e.what();
    return Error{Code::kPeerLost,
                 text("rank ", o.rank, " could not join ", o.world_size, " ranks through ", o.store,
                      ": ", reason.substr(0, reason.find('\n')))};
  }
}

}  // namespace lockstep::core
