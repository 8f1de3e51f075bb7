// What joining costs W ranks, counted and not timed: ranks as threads, which meet over Gloo, each
// with a line to the ranks' store of its own that counts; the store is in memory.
#include <gtest/gtest.h>

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "base/text.h"
#include "core/comm/join.h"
#include "core/comm/tree_communicator.h"
#include "launcher/net/descriptor_limit.h"
#include "tests/support/cost_table.h"
#include "tests/support/fake_nccl.h"
#include "tests/support/ranks_at_once.h"

namespace lockstep::core {
namespace {

using test_support::Cost;
using test_support::CostTable;
using test_support::Tally;

constexpr int kWorldSizes[] = {8, 16, 32, 64, 128, 256};
constexpr int kOfNode = 4;
// From so many ranks on the smallest group, of a rank's peers on the other nodes, fills a group of
// the tree. Below it a rank meets fewer.
constexpr int kFullWorld = kOfNode * TreeCommunicator::kFanIn;

class CountingStore final : public c10d::Store {
 public:
  CountingStore(c10::intrusive_ptr<c10d::Store> behind, Tally& tally)
      : behind_(std::move(behind)), tally_(tally) {}

  c10::intrusive_ptr<Store> clone() override {
    return c10::make_intrusive<CountingStore>(behind_->clone(), tally_);
  }
  using Bytes = std::vector<uint8_t>;
  using Keys = std::vector<std::string>;
  using Milliseconds = std::chrono::milliseconds;
  using Store::compareSet;
  using Store::set;
  void set(const std::string& key, const Bytes& value) override {
    note(key, value.size());
    behind_->set(key, value);
  }
  Bytes compareSet(const std::string& key, const Bytes& expected, const Bytes& desired) override {
    note(key, expected.size() + desired.size());
    return behind_->compareSet(key, expected, desired);
  }
  Bytes get(const std::string& key) override {
    Bytes value = behind_->get(key);
    note(key, value.size());
    return value;
  }
  int64_t add(const std::string& key, int64_t value) override {
    note(key, sizeof value);
    return behind_->add(key, value);
  }
  bool deleteKey(const std::string& key) override {
    note(key, 0);
    return behind_->deleteKey(key);
  }
  bool check(const Keys& keys) override {
    note(keys);
    return behind_->check(keys);
  }
  int64_t getNumKeys() override { return behind_->getNumKeys(); }
  void wait(const Keys& keys) override {
    note(keys);
    behind_->wait(keys);
  }
  void wait(const Keys& keys, const Milliseconds& timeout) override {
    note(keys);
    behind_->wait(keys, timeout);
  }

 private:
  void note(const std::string& key, size_t bytes) {
    tally_.add(Cost::kRequests);
    tally_.add(Cost::kStoreBytes, key.size() + bytes);
  }
  void note(const Keys& keys) {
    size_t bytes = 0;
    for (const std::string& key : keys) bytes += key.size();
    note("", bytes);
  }
  c10::intrusive_ptr<c10d::Store> behind_;
  Tally& tally_;
};

RendezvousOptions place(int rank, int world_size) {
  RendezvousOptions o;
  o.rank = rank;
  o.world_size = world_size;
  o.local_rank = rank % kOfNode;
  o.local_world_size = kOfNode;
  o.prefix = "g1-7f2a91";
  o.init_timeout_s = o.timeout_s = 240;
  o.facts.host = text("node", rank / kOfNode);
  o.sizes = [](int all, const layout::NodeRanks& nodes) {
    EXPECT_EQ(nodes, layout::NodeRanks(kOfNode));
    return layout::GroupSizes{all, std::min(all, nodes.together)};
  };
  return o;
}

// Ranks with a device each, under full_shard: groups of a node, and their peers.
void count(int world_size, const std::vector<CostTable*>& tables) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<Tally> tallies(static_cast<size_t>(world_size));
  FakeStreams streams;
  FakeNccl nccl(streams);
  std::vector<std::unique_ptr<Membership>> members(tallies.size());
  const auto joined = test_support::ranks_at_once(world_size, [&](int rank) -> Result<void> {
    const auto mine = static_cast<size_t>(rank);
    RendezvousOptions o = place(rank, world_size);
    o.facts.build = o.facts.kind = "cuda";
    o.facts.devices = kOfNode;
    o.facts.uuid = text("GPU-4c7dd0ad-6bd6-4b6e-9d1b-3c1e7d8f", rank);
    o.nccl = &nccl;
    o.connect_store = [&store, &tally = tallies[mine]] {
      return c10::make_intrusive<CountingStore>(store, tally);
    };
    LOCKSTEP_TRY(Membership m, join(o));
    const WireBytes heard = m.wire_bytes();
    tallies[mine].add(Cost::kMessageBytes, static_cast<size_t>(heard.total().all));
    members[mine] = std::make_unique<Membership>(std::move(m));
    return {};
  });
  for (const Result<void>& one : joined) ASSERT_TRUE(one.ok()) << one.error().message;
  test_support::ranks_at_once(world_size, [&](int rank) {
    members[static_cast<size_t>(rank)].reset();  // its links end when those of all do
    return 0;
  });
  std::vector<const Tally*> all;
  for (const Tally& tally : tallies) all.push_back(&tally);
  for (CostTable* const table : tables) table->add("join", world_size, all);
}

TEST(JoinCost, ARankPaysTheSameAtAnyNumberOfRanks) {
  launcher::net::raise_descriptor_limit();
  CostTable all, full;
  for (const int world_size : kWorldSizes) {
    std::vector<CostTable*> tables{&all};
    if (world_size >= kFullWorld) tables.push_back(&full);
    ASSERT_NO_FATAL_FAILURE(count(world_size, tables));
  }
  all.print(std::cout);
  const auto expect = [](const CostTable::Growth& growth, double most, const std::string& where) {
    EXPECT_LE(growth.exponent, most) << growth.what << ", " << where;
  };
  expect(full.mean_growth("join", {Cost::kMessageBytes}), 0.1, "per rank");
  // Facts rise by log8 W levels.
  expect(full.mean_growth("join"), 0.2, "per rank, with what rises along the tree");
  expect(all.busiest_growth("join"), 1.05, "at the busiest rank");
}

}  // namespace
}  // namespace lockstep::core
