// Joining, among threads of this process, which meet over Gloo.
#include "core/comm/join.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <thread>

#include "base/text.h"
#include "tests/support/fake_nccl.h"
#include "tests/support/reserved_port.h"
#include "tests/support/temp_dir.h"

namespace lockstep::core {
namespace {

constexpr double kPatience_s = 120;

// Ranks with a device each, as they say; their tensors lie on the CPU, and NCCL is a fake.
std::vector<RendezvousOptions> on_devices(int count, const std::filesystem::path& store,
                                          Nccl& nccl) {
  std::vector<RendezvousOptions> ranks;
  for (int r = 0; r < count; ++r) {
    RendezvousOptions one;
    one.rank = r;
    one.world_size = count;
    one.local_rank = r % 2;
    one.local_world_size = 2;
    one.store = text("file:", store.string());
    one.prefix = "g1";
    one.init_timeout_s = one.timeout_s = kPatience_s;
    one.facts.build = one.facts.kind = "cuda";
    one.facts.devices = 1;
    one.facts.uuid = text("GPU-", r);
    one.nccl = &nccl;
    ranks.push_back(one);
  }
  return ranks;
}

// f(membership) on each rank.
template <typename F>
void join_all(const std::vector<RendezvousOptions>& ranks, F f) {
  std::vector<std::thread> threads;
  for (const RendezvousOptions& options : ranks)
    threads.emplace_back([&] {
      auto joined = join(options);
      ASSERT_TRUE(joined.ok()) << joined.error().message;
      f(*joined);
    });
  for (std::thread& each : threads) each.join();
}

struct Case {
  const char* name;
  layout::GroupSizes sizes;
  bool native_sums;
  int links;  // of each rank
  bool all_exchange = false;
};

class JoinOverNccl : public testing::TestWithParam<Case> {};

// The groups of a strategy have the links that core/sharding uses, and share the blocks.
TEST_P(JoinOverNccl, MakesTheLinksThatAreUsed) {
  constexpr int kRanks = 4;
  test_support::TempDir folder;
  FakeStreams streams;
  FakeNccl nccl(streams);
  auto ranks = on_devices(kRanks, folder / "store", nccl);
  for (RendezvousOptions& one : ranks) {
    one.sizes = [](int, const layout::NodeRanks&) { return GetParam().sizes; };
    one.native_sums = GetParam().native_sums;
    one.all_exchange = GetParam().all_exchange;
  }
  join_all(ranks, [](Membership& m) {
    EXPECT_EQ(m.transport, Transport::kNccl);
    const Groups groups = m.groups();
    for (Gatherer* group : {groups.shard, groups.copies}) {
      const at::Tensor mine = at::arange(group->rank(), group->rank() + 1, at::kLong);
      const at::Tensor all = at::empty({group->world_size()}, at::kLong);
      ASSERT_TRUE(group->all_gather(all, mine)->wait().ok());
      EXPECT_TRUE(at::equal(all, at::arange(group->world_size(), at::kLong)));
    }
    if (GetParam().all_exchange) {
      const at::Tensor given = at::arange(kRanks, at::kFloat) + 10 * groups.world->rank();
      const at::Tensor got = at::empty({kRanks}, at::kFloat);
      const std::vector<int64_t> one_each(kRanks, 1);
      ASSERT_TRUE(groups.world->all_to_all(got, one_each, given, one_each)->wait().ok());
      EXPECT_TRUE(at::equal(got, at::arange(kRanks, at::kFloat) * 10 + groups.world->rank()));
    }
    if (!GetParam().native_sums) return;
    at::Tensor ones = at::ones({3}, at::kFloat);
    ASSERT_TRUE(groups.world->all_reduce_sum(ones)->wait().ok());
    EXPECT_TRUE(at::equal(ones, at::full({3}, kRanks, at::kFloat)));
  });
  const auto counts = nccl.counts();
  EXPECT_EQ(counts.made, kRanks * GetParam().links);
  EXPECT_EQ(counts.destroyed, counts.made);
  for (int ctas : counts.ctas) EXPECT_EQ(ctas, 32 / GetParam().links);
  EXPECT_EQ(nccl.violations(), std::vector<std::string>());
}

INSTANTIATE_TEST_SUITE_P(
    Strategies, JoinOverNccl,
    testing::Values(Case{"full_shard", {4, 4}, false, 2},
                    Case{"full_shard_native", {4, 4}, true, 2},
                    Case{"full_shard_of_nodes", {4, 2}, false, 4}, Case{"ddp", {1, 1}, false, 2},
                    Case{"ddp_native", {1, 1}, true, 2}, Case{"ddp_of_nodes", {1, 2}, false, 4},
                    Case{"hybrid", {2, 2}, false, 4}, Case{"hybrid_native", {2, 2}, true, 3},
                    Case{"full_shard_muon", {4, 4}, false, 2, true},
                    Case{"hybrid_muon", {2, 2}, false, 5, true}),
    [](const auto& one) { return std::string(one.param.name); });

// Ranks 0, 2 and 3 are on one host and rank 1 on another one: no group lies on one of them alone,
// and what comes from the other host is counted as that.
TEST(Join, RanksThatDoNotFollowEachOtherAreCountedByHost) {
  constexpr int kRanks = 4, kOfNode[] = {3, 1, 3, 3}, kPlace[] = {0, 0, 1, 2};
  test_support::TempDir folder;
  FakeStreams streams;
  FakeNccl nccl(streams);
  auto ranks = on_devices(kRanks, folder / "store", nccl);
  for (RendezvousOptions& one : ranks) {
    one.facts = {};
    one.facts.host = one.rank == 1 ? "b" : "a";
    one.local_world_size = kOfNode[one.rank];
    one.local_rank = kPlace[one.rank];
    one.sizes = [](int world_size, const layout::NodeRanks& nodes) {
      EXPECT_EQ(nodes, layout::NodeRanks(3, 1));
      return layout::GroupSizes{world_size, world_size};
    };
  }
  join_all(ranks, [](Membership& m) {
    EXPECT_EQ(m.transport, Transport::kGloo);
    const Groups groups = m.groups();
    EXPECT_EQ(groups.nodes, layout::NodeRanks(3, 1));
    auto hosts = hosts_of_ranks(*m.store, kPatience_s);
    ASSERT_TRUE(hosts.ok()) << hosts.error().message;
    EXPECT_EQ(*hosts, (std::vector<std::string>{"a", "b", "a", "a"}));
    const WireBytes before = m.wire_bytes();
    const at::Tensor mine = at::arange(1, at::kLong), all = at::empty({kRanks}, at::kLong);
    ASSERT_TRUE(groups.shard->all_gather(all, mine)->wait().ok());
    const WireBytes::Count count = m.wire_bytes().since(before).total();
    EXPECT_EQ(count.all, 3 * 8);
    EXPECT_EQ(count.other_nodes, groups.world->rank() == 1 ? 3 * 8 : 8);
  });
}

RendezvousOptions without_agent(int rank, int world_size, const test_support::ReservedPort& port) {
  RendezvousOptions options;
  options.rank = rank;
  options.world_size = world_size;
  options.store = text("tcp:127.0.0.1:", port.port());
  options.prefix = "g1";
  options.init_timeout_s = 0.2;
  return options;
}

TEST(Join, RanksThatNeverComeAreNamed) {
  const test_support::ReservedPort port;
  auto joined = join(without_agent(0, 3, port));
  ASSERT_FALSE(joined.ok());
  EXPECT_EQ(joined.error().code, Code::kPeerLost);
  EXPECT_NE(joined.error().message.find("ranks 1, 2 of 3 did not come"), std::string::npos)
      << joined.error().message;
  joined = join(without_agent(1, 3, port));
  ASSERT_FALSE(joined.ok());
  EXPECT_EQ(joined.error().code, Code::kPeerLost);
  EXPECT_NE(joined.error().message.find("the store of rank 0"), std::string::npos)
      << joined.error().message;
}

TEST(Join, AStopEndsTheWaitForRanks) {
  for (const int rank : {0, 1}) {
    const test_support::ReservedPort port;
    RendezvousOptions options = without_agent(rank, 2, port);
    options.init_timeout_s = 1e6;
    options.asked_to_stop = [] { return true; };
    const auto joined = join(options);
    ASSERT_FALSE(joined.ok());
    EXPECT_EQ(joined.error().code, Code::kAborted);
  }
}

// With nobody late.
TEST(Join, RanksWithoutAnAgentMeet) {
  const test_support::ReservedPort port;
  std::vector<RendezvousOptions> ranks;
  for (int r = 0; r < 3; ++r) {
    ranks.push_back(without_agent(r, 3, port));
    ranks.back().init_timeout_s = ranks.back().timeout_s = kPatience_s;
  }
  join_all(ranks, [](Membership& m) { EXPECT_EQ(m.communicator->world_size(), 3); });
}

// What is wrong with this machine is said at once: nobody serves this rank's store.
TEST(Join, AnInterfaceThatIsNotThereIsNamedBeforeTheStoreIsMet) {
  RendezvousOptions options;
  options.rank = 1;
  options.world_size = 2;
  options.store = "tcp:127.0.0.1:1";
  options.init_timeout_s = kPatience_s;
  options.interface = "nosuch0";
  auto joined = join(options);
  ASSERT_FALSE(joined.ok());
  EXPECT_EQ(joined.error().code, Code::kConfig);
  for (const char* word : {"nosuch0", "lo", "GLOO_SOCKET_IFNAME"})
    EXPECT_NE(joined.error().message.find(word), std::string::npos) << joined.error().message;
  options.bind_address = "192.0.2.1";  // of nobody's (RFC 5737)
  joined = join(options);
  ASSERT_FALSE(joined.ok());
  EXPECT_EQ(joined.error().code, Code::kConfig);
  for (const char* word : {"192.0.2.1", "--local-addr"})
    EXPECT_NE(joined.error().message.find(word), std::string::npos) << joined.error().message;
}

}  // namespace
}  // namespace lockstep::core
