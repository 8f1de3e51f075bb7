// What `lockstep plan` says and what a rank does come from the same decisions: bytes on the wire
// and pooled memory of real steps against those of the plan, to the byte.
#include "layout/memory_walk.h"
#include "tests/unit/core/planned_wire.h"
#include "tests/unit/core/strategies.h"

namespace lockstep::core {
namespace {

using enum ShardingStrategy;

constexpr int64_t kSteps = 2;

int64_t planned_pool(const Config& config, const layout::ModelSpec& spec,
                     const layout::Ranks& ranks) {
  const auto ledger = layout::walk_training(config, spec, ranks);
  // At the end everything was given back.
  return ledger.live(layout::MemoryUse::kPoolIdle) + ledger.live(layout::MemoryUse::kFold);
}

// `vocab_size`: 0 for the small model's, in whose embedding the head is as well. Bytes of the pools
// of each rank.
std::vector<int64_t> check(const Setting& setting, int64_t slots, int64_t vocab_size = 0,
                           OptimizerKind optimizer = OptimizerKind::kAdamW) {
  Config config = setting.config();
  config.optimizer.name = optimizer;
  config.training.slots = slots;
  config.model.vocab_size = vocab_size;
  config.model.tie_word_embeddings = vocab_size == 0;
  const layout::ModelSpec spec = hf::configured_model(config, 40).value();
  const int w = setting.world_size;
  const auto strategy = layout::Strategy::create(config, w, setting.ranks_of_node);
  std::vector<int64_t> pools(static_cast<size_t>(w));
  const auto inspect = [&](int rank, TrainingStep& model, const Groups& groups) {
    WireBytes counted;
    for (const Communicator* one : {groups.world, groups.group, groups.peers})
      counted.add(one->wire_bytes());
    const Wire wire{counted.gather.all / kSteps, counted.exchange.all / kSteps};
    EXPECT_EQ(wire, planned_wire(config, spec, strategy, rank))
        << setting.name() << " V=" << slots << " rank " << rank;
    pools[static_cast<size_t>(rank)] = static_cast<int64_t>(model.pool_bytes());
  };
  train(setting, kSteps, config, at::kCPU, inspect);
  const int64_t planned = planned_pool(config, spec, {w, setting.ranks_of_node}),
                most = optimizer == OptimizerKind::kMuon  // whose matrices are of rank 0 there
                           ? pools[0]
                           : *std::max_element(pools.begin(), pools.end());
  const std::string name = text(setting.name(), " V=", slots, " vocabulary ", vocab_size);
  EXPECT_GE(planned, most) << name;
  // The walk's rank computes in every round; under the block map that takes V = k W.
  if (std::ssize(strategy.map.slots_of(0)) == strategy.map.rounds()) {
    EXPECT_EQ(planned, most) << name;
  }
  return pools;
}

TEST(Planned, WireAndPoolOfEveryStrategy) {
  for (const auto strategy : {kDdp, kFullShard, kShardGradOp, kHybrid})
    for (const auto& [w, slots] : {std::pair(1, 5), {2, 5}, {2, 6}, {3, 7}, {3, 6}, {4, 9}, {4, 8}})
      for (const bool bf16 : {false, true})
        for (const auto map : {SlotMapKind::kCyclic, SlotMapKind::kBlock})
          check({.strategy = strategy, .world_size = w, .bf16 = bf16, .map = map}, slots);
}

TEST(Planned, WireAndPoolOfHybridInAnyGroups) {
  for (const auto& [w, s] : {std::pair(6, 2), {6, 3}, {8, 4}})
    for (const int64_t slots : {2 * w, 13})
      for (const bool bf16 : {false, true})
        for (const auto map : {SlotMapKind::kCyclic, SlotMapKind::kBlock})
          check({.strategy = kHybrid, .world_size = w, .shard_degree = s, .bf16 = bf16, .map = map},
                slots);
}

// V = W and V = 2 W, so that the walk's two rounds are all there are.
TEST(Planned, WireAndPoolBetweenNodes) {
  for (const auto strategy : {kDdp, kFullShard, kShardGradOp, kHybrid})
    for (const auto& [w, node] : {std::pair(4, 2), {6, 3}, {6, 4}})
      for (const int64_t slots : {w, 2 * w})
        for (const bool bf16 : {false, true})
          for (const auto map :
               {SlotMapKind::kCyclic, SlotMapKind::kBlock, SlotMapKind::kGroupBlock})
            check({.strategy = strategy,
                   .world_size = w,
                   .shard_degree = 0,
                   .bf16 = bf16,
                   .map = map,
                   .ranks_of_node = node},
                  slots);
}

TEST(Planned, WireAndPoolOfWhatANodeKeeps) {
  for (const auto& [w, node] : {std::pair(4, 2), {6, 3}, {6, 4}, {4, 4}})
    for (const int64_t slots : {w, 2 * w})
      for (const bool bf16 : {false, true})
        for (const auto map : {SlotMapKind::kCyclic, SlotMapKind::kBlock, SlotMapKind::kGroupBlock})
          check({.world_size = w,
                 .bf16 = bf16,
                 .map = map,
                 .ranks_of_node = node,
                 .reshard = ReshardAfterForward::kNode},
                slots);
}

// The most bytes of a step, parameters and gradients alike, that come to a rank from other nodes,
// whose ranks take their slots together.
int64_t crossing(int world_size, int64_t slots, ReshardAfterForward reshard) {
  const Setting setting{.world_size = world_size,
                        .bf16 = true,
                        .map = SlotMapKind::kGroupBlock,
                        .ranks_of_node = world_size / 2,
                        .reshard = reshard};
  Config config = setting.config();
  config.training.slots = slots;
  int64_t most = 0;
  train(setting, kSteps, config, at::kCPU, [&](int, TrainingStep&, const Groups& groups) {
    const WireBytes counted = groups.peers->wire_bytes();
    most = std::max(most, (counted.gather.all + counted.exchange.all) / kSteps);
  });
  return most;
}

TEST(Planned, FourTimesTheSlotsCrossAtMostOnceAndAThirdWhereANodeKeepsWhatCame) {
  using enum ReshardAfterForward;
  for (const int w : {4, 8}) {
    const int64_t one = crossing(w, w, kNode), four = crossing(w, 4 * w, kNode);
    EXPECT_LE(static_cast<double>(four), 1.3 * static_cast<double>(one)) << w;
    EXPECT_LT(one, crossing(w, w, kWorld)) << w;
    EXPECT_GT(static_cast<double>(crossing(w, 4 * w, kWorld)),
              1.3 * static_cast<double>(crossing(w, w, kWorld)))
        << w;
  }
}

// Runs of three slots: {0,1} is one sum, and 3 and 4 are two, which wait for 5 and the rest.
TEST(Planned, PoolOfANodeThatKeepsMoreSumsThanTheFirst) {
  for (const auto strategy : {kDdp, kFullShard, kShardGradOp})
    for (const bool bf16 : {false, true}) {
      const auto pools = check({.strategy = strategy,
                                .world_size = 6,
                                .bf16 = bf16,
                                .map = SlotMapKind::kGroupBlock,
                                .ranks_of_node = 2},
                               9);
      EXPECT_GT(pools[2], pools[0]);
    }
}

// A block has 9 tiles. Embedding and head have fewer, or more, or more than four times as many.
TEST(Planned, WireAndPoolOfUnlikeUnits) {
  for (const int64_t vocab_size : {700, 1500, 6000})
    for (const auto strategy : {kFullShard, kShardGradOp, kHybrid})
      for (const auto& [w, slots] : {std::pair(2, 6), {3, 3}, {4, 12}})
        for (const bool bf16 : {false, true})
          for (const auto map : {SlotMapKind::kCyclic, SlotMapKind::kBlock})
            check({.strategy = strategy, .world_size = w, .bf16 = bf16, .map = map}, slots,
                  vocab_size);
}

TEST(Planned, WireAndPoolOfMuon) {
  for (const auto strategy : {kDdp, kFullShard, kShardGradOp, kHybrid})
    for (const auto& [w, slots] : {std::pair(1, 2), {2, 4}, {3, 3}, {4, 8}, {6, 6}})
      for (const bool bf16 : {false, true})
        for (const auto wrap : {WrapPolicy::kModuleWrap, WrapPolicy::kNone})
          check({.strategy = strategy, .world_size = w, .bf16 = bf16, .wrap = wrap}, slots, 0,
                OptimizerKind::kMuon);
}

TEST(Planned, WireAndPoolWithAnyPrefetchAndUnits) {
  for (const auto strategy : {kFullShard, kShardGradOp})
    for (const auto wrap : {WrapPolicy::kModuleWrap, WrapPolicy::kSizeBased, WrapPolicy::kNone})
      for (const auto backward :
           {BackwardPrefetch::kPre, BackwardPrefetch::kPost, BackwardPrefetch::kNone})
        for (const bool forward : {false, true})
          check({.strategy = strategy,
                 .world_size = 3,
                 .forward_prefetch = forward,
                 .backward_prefetch = backward,
                 .wrap = wrap},
                4);
}

}  // namespace
}  // namespace lockstep::core
