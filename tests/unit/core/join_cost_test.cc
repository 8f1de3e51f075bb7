// What joining costs W ranks, and then what they tell each other in a step, counted and not timed:
// ranks as threads, which meet over Gloo, each with a line to the ranks' store of its own that
// counts; the store is in memory.
#include <gtest/gtest.h>

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "base/hash.h"
#include "base/text.h"
#include "core/comm/join.h"
#include "core/comm/tree_communicator.h"
#include "core/sharding/norm_sum.h"
#include "core/sharding/rank_sums.h"
#include "launcher/net/descriptor_limit.h"
#include "layout/decoder_model.h"
#include "tests/support/cost_table.h"
#include "tests/support/fake_nccl.h"
#include "tests/support/ranks_at_once.h"
#include "tests/unit/core/planned_wire.h"

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

// Llama 3 8B in bf16.
Config config_8b(int64_t slots) {
  Config c;
  c.model.dim = 4096;
  c.model.n_layers = 32;
  c.model.n_heads = 32;
  c.model.n_kv_heads = 8;
  c.model.ffn_dim = 14'336;
  c.model.vocab_size = 128'256;
  c.training.slots = slots;
  c.training.mixed_precision_param = FloatType::kBfloat16;
  return c;
}

// A step of it by ranks that joined.
class Step {
 public:
  Step(int world_size, int64_t slots_of_rank)
      : config_(config_8b(world_size * slots_of_rank)),
        spec_(layout::create(layout::shape_of_keys(config_, 0).value(), config_.lora)),
        strategy_(layout::Strategy::create(config_, world_size, layout::NodeRanks(kOfNode))) {
    for (const layout::UnitSpec& unit : spec_.units) units_.push_back(strategy_.layout_of(unit));
  }

  // What its tensors bring to a rank, by the plan.
  int64_t tensor_bytes(int rank) const {
    const Wire wire = planned_wire(config_, spec_, strategy_, rank);
    return wire.gather + wire.exchange;
  }
  // Tells and hears all that TrainingStep does beside its tensors.
  Result<void> share(const Groups& groups) const {
    const int rank = groups.world->rank();
    RankSums sums({strategy_.map}, rank);
    for (const int64_t slot : strategy_.map.slots_of(rank)) {
      sums.set_loss(slot, 0.5);
      sums.set_valid_tokens(slot, 2);
    }
    RankFlags flags;
    flags.stop = rank == 5;
    flags.snapshot_step = rank == 3 ? 7 : 9;
    sums.set_flags(flags);
    sums.share(*groups.world);
    LOCKSTEP_RETURN_IF_ERROR(sums.wait());
    EXPECT_EQ(sums.total().sum, 0.5 * static_cast<double>(config_.slots()));
    EXPECT_EQ(sums.total().valid_tokens, 2 * config_.slots());
    EXPECT_TRUE(sums.flags().stop);
    EXPECT_EQ(sums.flags().snapshot_step, 7);

    const NormSum norm(units_, groups);
    std::vector<double> row;  // of squares that are 1 each
    for (const layout::SlotRun& node : norm.tree().own_nodes(rank))
      row.push_back(static_cast<double>(node.count));
    row.resize(static_cast<size_t>(norm.tree().width()));
    LOCKSTEP_TRY(const double total, norm.total(row));
    double tiles = 0;
    for (const layout::ShardLayout& unit : units_) tiles += static_cast<double>(unit.tiles);
    EXPECT_EQ(total, tiles);

    const auto words = 2 * spec_.units.size();  // a digest of weights and of gradients each
    const WordSum all(static_cast<int64_t>(words));
    LOCKSTEP_TRY(const auto digests,
                 MergedWords(*groups.world, all, std::vector<uint64_t>(words, 3)).wait());
    EXPECT_EQ(digests.back(), 3u * static_cast<uint64_t>(groups.world->world_size()));
    return {};
  }

 private:
  Config config_;
  layout::ModelSpec spec_;
  layout::Strategy strategy_;
  std::vector<layout::ShardLayout> units_;
};

// Ranks under full_shard: groups of a node, and their peers. With a device each, or on CPUs: their
// words go the same way.
enum class Kind { kDevices, kCpus };
class Ranks {
 public:
  Ranks(int world_size, Kind kind)
      : kind_(kind), tallies_(static_cast<size_t>(world_size)), nccl_(streams_) {
    members_.resize(tallies_.size());
    each([&](int rank) { return meet(rank); });
  }
  // Its links end when those of all do.
  ~Ranks() {
    each([&](int rank) -> Result<void> {
      members_[static_cast<size_t>(rank)].reset();
      return {};
    });
  }
  int world_size() const { return static_cast<int>(tallies_.size()); }

  // Bytes of messages that come to each rank meanwhile.
  template <typename F>
  void count(F f) {
    each([&](int rank) -> Result<void> {
      const auto me = static_cast<size_t>(rank);
      const int64_t before = members_[me]->wire_bytes().total().all;
      LOCKSTEP_RETURN_IF_ERROR(f(rank, members_[me]->groups()));
      tallies_[me].reset();
      tallies_[me].add(Cost::kMessageBytes,
                       static_cast<size_t>(members_[me]->wire_bytes().total().all - before));
      return {};
    });
  }
  void add(const std::string& operation, const std::vector<CostTable*>& tables) const {
    std::vector<const Tally*> all;
    for (const Tally& tally : tallies_) all.push_back(&tally);
    for (CostTable* const table : tables) table->add(operation, world_size(), all);
  }
  Tally& tally(int rank) { return tallies_[static_cast<size_t>(rank)]; }

 private:
  template <typename F>
  void each(F f) {
    for (const Result<void>& one : test_support::ranks_at_once(world_size(), f))
      EXPECT_TRUE(one.ok()) << one.error().message;
  }
  Result<void> meet(int rank) {
    const auto mine = static_cast<size_t>(rank);
    RendezvousOptions o = place(rank, world_size());
    if (kind_ == Kind::kDevices) {
      o.facts.build = o.facts.kind = "cuda";
      o.facts.devices = kOfNode;
      // As unlike as those of NVIDIA's.
      o.facts.uuid = text("GPU-", hex64(xxh3_64(text(rank))), hex64(xxh3_64(text(rank, "+"))));
      o.nccl = &nccl_;
    } else {
      o.facts = own_facts(o.device, o.facts.host);
    }
    o.connect_store = [this, &tally = tallies_[mine]] {
      return c10::make_intrusive<CountingStore>(store_, tally);
    };
    LOCKSTEP_TRY(Membership m, join(o));
    const WireBytes heard = m.wire_bytes();
    tallies_[mine].add(Cost::kMessageBytes, static_cast<size_t>(heard.total().all));
    members_[mine] = std::make_unique<Membership>(std::move(m));
    return {};
  }

  const Kind kind_;
  const c10::intrusive_ptr<c10d::HashStore> store_ = c10::make_intrusive<c10d::HashStore>();
  std::vector<Tally> tallies_;
  FakeStreams streams_;
  FakeNccl nccl_;
  std::vector<std::unique_ptr<Membership>> members_;
};

constexpr char kWords[] = "words of a step", kMoreWords[] = "the same, four slots a rank",
               kTensors[] = "tensors of a step";

void count(int world_size, const std::vector<CostTable*>& tables) {
  Ranks(world_size, Kind::kDevices).add("join", tables);
  Ranks ranks(world_size, Kind::kCpus);
  for (const int slots : {1, 4}) {
    const Step step(world_size, slots);
    ranks.count([&](int, const Groups& groups) { return step.share(groups); });
    ranks.add(slots == 1 ? kWords : kMoreWords, {tables.front()});
  }
  const Step step(world_size, 1);
  for (int rank = 0; rank < world_size; ++rank) {
    ranks.tally(rank).reset();
    ranks.tally(rank).add(Cost::kMessageBytes, static_cast<size_t>(step.tensor_bytes(rank)));
  }
  ranks.add(kTensors, {tables.front()});
}

TEST(RankCost, ARankPaysTheSameAtAnyNumberOfRanks) {
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
  expect(full.mean_growth("join"), 0.1, "per rank");
  expect(all.busiest_growth("join"), 1.05, "at the busiest rank");
  for (const char* const step : {kWords, kMoreWords, kTensors}) {
    expect(all.mean_growth(step), 0.1, text("per rank, ", step));
    expect(all.busiest_growth(step), 1.05, text("at the busiest rank, ", step));
  }
}

}  // namespace
}  // namespace lockstep::core
