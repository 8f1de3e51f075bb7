#include "core/comm/join.h"

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <thread>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/number.h"
#include "base/text.h"
#include "core/comm/agent_store.h"
#include "core/comm/device_communicator.h"
#include "core/comm/gather_strings.h"
#include "core/comm/node_communicator.h"
#include "core/comm/rank_agreement.h"
#include "core/comm/single_communicator.h"
#include "core/comm/tree_communicator.h"
#include "core/device/devices.h"
#include "core/rendezvous/roll_call.h"

namespace lockstep::core {
namespace {

// Blocks of collectives that run on a device at once, at most: each keeps a multiprocessor from
// computing. Not measured. NCCL_MAX_CTAS in the environment comes first.
constexpr int kCtas = 32;
constexpr const char* kHostsKey = "hosts";  // rank 0's word on them

std::chrono::milliseconds to_ms(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

// May throw what c10d throws.
c10::intrusive_ptr<c10d::Store> connect_store(const RendezvousOptions& o, bool may_serve) {
  if (o.connect_store) return with_prefix(o.prefix, o.connect_store());
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
  return with_prefix(o.prefix, store);
}

// A place in a group.
struct Seat {
  int rank, size;
  std::vector<int> nodes;  // of the group's ranks
};

// Seat k of it is taken by rank first + k * stride of the run.
Seat seat_of(const std::vector<int>& node_of_rank, int rank, int size, int first, int stride) {
  Seat seat{rank, size, {}};
  for (int k = 0; k < size; ++k)
    seat.nodes.push_back(node_of_rank[static_cast<size_t>(first + k * stride)]);
  return seat;
}

GlooOptions gloo_options(const RendezvousOptions& o, const Seat& seat, int threads) {
  return {seat.rank,   seat.size, seat.nodes,       o.bind_address,
          o.interface, threads,   o.init_timeout_s, o.timeout_s};
}

// Requires: more ranks than one. May throw what c10d throws.
std::unique_ptr<TreeCommunicator> connect_over_gloo(const RendezvousOptions& o,
                                                    const std::string& prefix, const Seat& seat,
                                                    int threads) {
  return connect_tree(gloo_options(o, seat, threads),
                      with_prefix(prefix, connect_store(o, /*may_serve=*/false)));
}

// Once all ranks are there, where no agent watches them. May throw what c10d throws.
Result<c10::intrusive_ptr<c10d::Store>> first_store(const RendezvousOptions& o) {
  if (o.connect_store || !o.store.starts_with("tcp:")) return connect_store(o, /*may_serve=*/true);
  // A port that is taken is an error at once.
  const auto served = o.serve && o.rank == 0 ? connect_store(o, /*may_serve=*/true) : nullptr;
  const auto connect = [&](double timeout_s) {
    RendezvousOptions hasty = o;
    hasty.init_timeout_s = timeout_s;
    return served ? served : connect_store(hasty, /*may_serve=*/false);
  };
  const RollCall call{system_clock(), o.rank, o.world_size, o.init_timeout_s, o.asked_to_stop};
  LOCKSTEP_TRY(auto store, call_roll(call, connect));
  store->setTimeout(to_ms(o.init_timeout_s));
  return store;
}

// May throw what c10d throws.
std::unique_ptr<Communicator> connect_group(const RendezvousOptions& o, const std::string& prefix,
                                            const Seat& seat, int threads) {
  if (seat.size == 1) return std::make_unique<SingleCommunicator>();
  return connect_over_gloo(o, prefix, seat, threads);
}

// Bytes over them are not counted.
Buddies::Connect ways_of_two(const RendezvousOptions& o) {
  return [o](const std::string& name, int place) {
    return connect_gloo(gloo_options(o, {place, 2, {0, 0}}, 1),
                        with_prefix("buddies/" + name, connect_store(o, /*may_serve=*/false)));
  };
}

bool on_one_node(const std::vector<int>& nodes) {
  return std::count(nodes.begin(), nodes.end(), nodes.front()) == std::ssize(nodes);
}

// Leaves a group whose end may wait for a silent peer.
template <typename Group>
void let_go(Group group) {
  std::thread([left = std::move(group)] {}).detach();
}

// Step 2. `facts`: those of all, at rank 0. Collective.
Result<RankAgreement> agree_with_all(TreeCommunicator& all, const RendezvousOptions& o,
                                     std::vector<RankFacts>& facts) {
  RankFacts mine = o.facts;
  mine.local_rank = o.local_rank;
  mine.ranks_of_node = o.local_world_size;
  LOCKSTEP_TRY(const std::string said,
               all.ask_first(encode(mine), kFactsBytes, [&](const auto& words) {
                 auto heard = parse_all_facts(words);
                 if (!heard.ok()) return encode(Result<RankAgreement>(heard.error()));
                 facts = std::move(heard).value();
                 return encode(agree(facts));
               }));
  auto agreed = parse_rank_agreement(said, o.world_size);
  if (!agreed.ok() && agreed.error().code == Code::kConfig)
    (void)gather_strings(all, "", 1).ok();  // departed ranks already reported their reason
  return agreed;
}

// The same group through memory, where it is inside a node. Collective.
Result<std::unique_ptr<Communicator>> through_memory(const RendezvousOptions& o, const Seat& seat,
                                                     std::unique_ptr<Communicator> group) {
  if (seat.size == 1 || !on_one_node(seat.nodes)) return group;
  return share_memory(std::move(group), o.timeout_s);
}

// The links that core/sharding uses, by group. Over those of a group and of its peers parameters
// and sums are gathered and gradients exchanged. With native sums all ranks add up, and no
// gradients are exchanged. Where a group is all ranks, or one, the communicator of all ranks is the
// others'.
struct LinksOf {
  DeviceLinks world, group{false, false}, peers{false, false};
  static LinksOf create(const RendezvousOptions& o, const layout::GroupSizes& sizes) {
    if (!sizes.two_legs(o.world_size)) return {};
    const DeviceLinks both{true, !o.native_sums};
    return {{false, o.native_sums || o.all_exchange}, both, both};
  }
  // What a rank's links may take of its device together, in equal parts.
  int ctas_of_link() const { return kCtas / (world.count() + group.count() + peers.count()); }
};

// The same group with a way for its devices' tensors. Collective.
Result<std::unique_ptr<Communicator>> for_devices(const RendezvousOptions& o, const Seat& seat,
                                                  Transport transport, DeviceLinks links,
                                                  int ctas_of_link,
                                                  std::unique_ptr<Communicator> group) {
  if (seat.size == 1) return group;
  if (transport == Transport::kStaged) return stage_through_host(std::move(group));
  if (transport != Transport::kNccl) return group;
  Nccl* nccl = o.nccl;
  if constexpr (!kCpuOnly)
    if (nccl == nullptr) nccl = &nccl_library();
  LOCKSTEP_CHECK(nccl != nullptr, "this build is for CPUs only and has no NCCL");
  return connect_devices(*nccl, device_of(o.device), std::move(group),
                         {seat.nodes, links, ctas_of_link, o.init_timeout_s, o.timeout_s});
}

// What rank 0 alone knows: to the log, and the hosts to who asks for them.
Result<void> tell_people(Transport transport, const std::vector<RankFacts>& facts,
                         SharedStore& store) {
  log_line(transport == Transport::kStaged ? Level::kWarning : Level::kInfo,
           transport_text(transport, facts));
  if (const std::string advice = nodes_of(facts).advice; !advice.empty()) log_warning(advice);
  return store.set(kHostsKey, encode_hosts(facts));
}

// Steps 1 to 3. Afterwards `all` has the nodes that were agreed on. Collective. May throw what c10d
// throws.
Result<Membership> meet(const RendezvousOptions& o, Seat& all) {
  Membership m;
  m.device = o.device;
  LOCKSTEP_TRY(auto store, first_store(o));
  auto host = connect_tree(gloo_options(o, all, 2), with_prefix("gloo", std::move(store)));
  std::vector<RankFacts> facts;
  auto agreed = agree_with_all(*host, o, facts);
  if (!agreed.ok()) {
    let_go(std::move(host));
    return agreed.error();
  }
  m.nodes = agreed->nodes.sizes;
  m.node_of_rank = all.nodes = agreed->nodes.of_rank;
  host->set_nodes(all.nodes);
  const Communicator* const over_gloo = host.get();
  LOCKSTEP_TRY(m.communicator, through_memory(o, all, std::move(host)));
  const bool no_memory = m.communicator.get() == over_gloo;
  m.transport =
      agreed->transport == Transport::kMemory && no_memory ? Transport::kGloo : agreed->transport;
  // Votes go over a connection of their own: a store call holds its connection's lock while it
  // waits.
  m.store = share_store(with_prefix("votes", connect_store(o, /*may_serve=*/false)));
  Result<void> met;
  if (o.rank == 0) met = tell_people(*m.transport, facts, *m.store);
  if (met.ok() && o.met) met = o.met(*m.communicator, *m.store);
  if (!met.ok()) {
    let_go(std::move(m));
    return met.error();
  }
  return m;
}

void make_copy_groups(Membership& m, int shard_size) {
  Communicator &group = m.group ? *m.group : *m.communicator,
               &peers = m.peers ? *m.peers : *m.communicator;
  m.copy_groups = std::make_unique<CopyGroups>(group, peers, shard_size);
}

// Step 4. Collective. May throw what c10d throws.
Result<void> connect_groups(const RendezvousOptions& o, const Seat& all, Membership& m) {
  const layout::GroupSizes sizes =
      o.sizes ? o.sizes(o.world_size, m.nodes) : layout::GroupSizes{o.world_size, o.world_size};
  const int size = sizes.group;
  LOCKSTEP_CHECK(o.world_size % size == 0, o.world_size, " ranks in groups of ", size);
  const LinksOf links = LinksOf::create(o, sizes);
  const auto connect = [&](const std::string& prefix, const Seat& seat,
                           DeviceLinks own) -> Result<std::unique_ptr<Communicator>> {
    LOCKSTEP_TRY(auto group, through_memory(o, seat, connect_group(o, prefix, seat, 2)));
    return for_devices(o, seat, *m.transport, own, links.ctas_of_link(), std::move(group));
  };
  LOCKSTEP_TRY(m.communicator, for_devices(o, all, *m.transport, links.world, links.ctas_of_link(),
                                           std::move(m.communicator)));
  if (o.buddies) m.buddies = std::make_unique<Buddies>(o.rank, ways_of_two(o));
  const int group = o.rank / size, place = o.rank % size;
  if (size < o.world_size) {
    const Seat seat = seat_of(all.nodes, place, size, group * size, 1);
    LOCKSTEP_TRY(m.group, connect(text("gloo_group", group), seat, links.group));
  }
  if (size > 1) {
    const Seat seat = seat_of(all.nodes, group, o.world_size / size, place, size);
    LOCKSTEP_TRY(m.peers, connect(text("gloo_peers", place), seat, links.peers));
  }
  make_copy_groups(m, sizes.shard);
  return {};
}

}  // namespace

RankFacts own_facts(at::Device device, const std::string& host) {
  const Device& kind = device_of(device);
  RankFacts facts;
  facts.host = host;
  if (!kCpuOnly) facts.build = at::DeviceTypeName(built_device().type(), /*lower_case=*/true);
  facts.kind = at::DeviceTypeName(device.type(), /*lower_case=*/true);
  facts.devices = built_device().count();
  facts.uuid = kind.uuid();
  facts.capability = kind.capability();
  facts.collectives = kind.collectives();
  return facts;
}

Result<std::vector<std::string>> hosts_of_ranks(SharedStore& store, double timeout_s) {
  LOCKSTEP_TRY(const std::string words, store.get(kHostsKey, timeout_s));
  return parse_hosts(words);
}

Result<Membership> join(const RendezvousOptions& o) {
  if (o.world_size == 1) {
    Membership m;
    m.communicator = std::make_unique<SingleCommunicator>();
    m.store = make_local_store();
    m.device = o.device;
    LOCKSTEP_RETURN_IF_ERROR(m.store->set(kHostsKey, encode_hosts({o.facts})));
    make_copy_groups(m, 1);
    return m;
  }
  const bool known = o.connect_store || o.store.starts_with("file:") ||
                     o.store.starts_with(kAgentStore) ||
                     (o.store.starts_with("tcp:") && o.store.find(':', 4) != std::string::npos);
  if (!known)
    return Error{Code::kConfig, text("the rendezvous store (LOCKSTEP_STORE) is \"", o.store,
                                     "\"; it must be file:PATH, agent:PATH or tcp:HOST:PORT")};
  LOCKSTEP_RETURN_IF_ERROR(check_address(o.bind_address, o.interface));
  try {
    Seat all{o.rank, o.world_size, std::vector<int>(static_cast<size_t>(o.world_size))};
    LOCKSTEP_TRY(Membership m, meet(o, all));
    LOCKSTEP_RETURN_IF_ERROR(connect_groups(o, all, m));
    return m;
  } catch (const std::exception& e) {
    const std::string reason = e.what();
    return Error{Code::kPeerLost,
                 text("rank ", o.rank, " could not join ", o.world_size, " ranks through ", o.store,
                      ": ", reason.substr(0, reason.find('\n')))};
  }
}

}  // namespace lockstep::core
