// Strategies, wrap policies, slot maps, prefetch and checkpointing move work and memory, never a
// bit. A sample of all combinations here; all of them in strategies_slow_test.
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <fstream>

#include "core/train/state_pieces.h"
#include "tests/support/ranks_at_once.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/core/strategy_grid.h"

namespace lockstep::core {
namespace {

TEST(Strategies, ASampleOfAllCombinationsGivesTheSameBits) {
  check_settings(sample_of_settings(20261121, 60), 30);
}

TEST(Strategies, EveryStrategyAndWorldSizeWithDefaults) {
  check_settings(spreads_with_defaults(5), 6);
}

TEST(Strategies, ExpertsGiveTheSameBits) {
  const test_support::TempDir folder;
  std::ofstream(folder / "config.json") << kExperts;
  std::vector<Setting> settings;
  for (bool bf16 : {false, true})
    for (ShardingStrategy strategy :
         {ShardingStrategy::kSingle, ShardingStrategy::kDdp, ShardingStrategy::kFullShard,
          ShardingStrategy::kShardGradOp, ShardingStrategy::kHybrid})
      for (int w : {1, 2, 4})
        for (Recompute checkpointing : {Recompute::kNone, Recompute::kFull})
          if (strategy != ShardingStrategy::kSingle || w == 1)
            settings.push_back({.strategy = strategy,
                                .world_size = w,
                                .bf16 = bf16,
                                .checkpointing = checkpointing});
  check_settings(settings, 4, [&](Config& c) {
    c.model.hf_assets_path = folder.path().string();
    c.model.init = InitialWeights::kRandom;
  });
}

// Groups of 2 and 3 on 4 and 6 ranks, of 4 on 8 with fewer slots than ranks, and groups that sum
// their slots before these travel.
TEST(Strategies, HybridInAnyGroupsGivesTheSameBits) {
  std::vector<Setting> settings;
  for (bool bf16 : {false, true})
    for (SlotMapKind map : {SlotMapKind::kCyclic, SlotMapKind::kBlock})
      for (const auto& [w, s] : {std::pair(4, 2), {6, 2}, {6, 3}, {8, 4}})
        settings.push_back({.strategy = ShardingStrategy::kHybrid,
                            .world_size = w,
                            .shard_degree = s,
                            .bf16 = bf16,
                            .map = map});
  check_settings(settings, 6);
  check_settings(settings, 3, [](Config& c) { c.training.slots = 16; });
}

// Several nodes: full groups of 2, 3 and 4, uneven ones (6 ranks, 4 a node), and one that has no
// slots at all.
TEST(Strategies, TwoLegsBetweenNodesGiveTheSameBits) {
  std::vector<Setting> settings;
  for (bool bf16 : {false, true})
    for (ShardingStrategy strategy : {ShardingStrategy::kDdp, ShardingStrategy::kFullShard,
                                      ShardingStrategy::kShardGradOp, ShardingStrategy::kHybrid})
      for (SlotMapKind map : {SlotMapKind::kCyclic, SlotMapKind::kBlock, SlotMapKind::kGroupBlock})
        for (const auto& [w, node] : {std::pair(4, 2), {6, 3}, {6, 4}, {8, 4}, {3, 2}, {5, 1}})
          settings.push_back({.strategy = strategy,
                              .world_size = w,
                              .shard_degree = 0,
                              .bf16 = bf16,
                              .map = map,
                              .ranks_of_node = node});
  check_settings(settings, 2);
  std::erase_if(settings, [](const Setting& s) {
    return s.world_size > 4 || s.bf16 || s.strategy == ShardingStrategy::kShardGradOp;
  });
  for (const int64_t slots : {1, 13})
    check_settings(settings, 2, [&](Config& c) { c.training.slots = slots; });
}

// On nodes as above; on one node, and where nodes make no groups, there is nothing to keep.
TEST(Strategies, WhatANodeKeepsOfOtherNodesChangesNoBit) {
  std::vector<Setting> settings;
  for (bool bf16 : {false, true})
    for (SlotMapKind map : {SlotMapKind::kCyclic, SlotMapKind::kBlock, SlotMapKind::kGroupBlock})
      for (const auto& [w, node] :
           {std::pair(1, 0), {2, 2}, {2, 1}, {3, 2}, {4, 2}, {6, 3}, {6, 4}, {8, 4}}) {
        settings.push_back({.world_size = w,
                            .bf16 = bf16,
                            .map = map,
                            .ranks_of_node = node,
                            .reshard = ReshardAfterForward::kNode});
        if (w != 4) continue;
        Setting moved = settings.back();
        moved.offload = true;
        moved.forward_prefetch = false;
        moved.backward_prefetch = BackwardPrefetch::kPost;
        moved.wrap = WrapPolicy::kSizeBased;
        settings.push_back(moved);
      }
  check_settings(settings, 4);
  check_settings(settings, 2, [](Config& c) { c.training.slots = 13; });
  std::erase_if(settings, [](const Setting& s) { return s.world_size != 4; });
  check_settings(settings, 3, [](Config& c) { c.lora.rank = 2; });
  check_settings(settings, 3, [](Config& c) { c.optimizer.name = OptimizerKind::kMuon; });
}

// By an element's number in its parameter, its tile, and of which state; exact in bf16 too.
at::Tensor told_apart(const std::string& kind_of_name, const Segment& s) {
  const at::Tensor i = at::arange(s.flat_start, s.flat_start + s.length, at::kLong);
  const auto of_name = static_cast<int64_t>(xxh3_64(kind_of_name) % 97);
  return i.add(i.div(layout::kTileElements, "floor"), 31).add_(of_name).remainder_(251);
}

// Each rank reads what it owns, and no byte of a checkpoint is read twice: the copies pass it on.
void expect_whole_copies(const Setting& setting, OptimizerKind optimizer, FloatType moments) {
  Config config = setting.config();
  config.optimizer.name = optimizer;
  config.optimizer.state_dtype = moments;
  config.model.vocab_size = 800;  // whose embedding has seven tiles
  const layout::ModelSpec spec = hf::configured_model(config, 40).value();
  const int w = setting.world_size, node = setting.ranks_of_node;
  ThreadGroups groups(w, layout::group_sizes(config, w, node), node);
  std::atomic<int64_t> elements = 0;
  test_support::ranks_at_once(w, [&](int rank) {
    TrainingStep model(config, spec, groups.of(rank));
    EXPECT_TRUE(model.initialize(nullptr).ok());
    const auto each = [&](bool owned, const auto& f) {
      for (auto& unit : model.units()) {
        const ShardState& state = unit->state;
        for (const Segment& s : owned ? state.owned_segments() : state.held_segments())
          for (const auto& [kind, t] : state_at(*unit, s, owned ? state.owned_offset() : 0))
            f(t, told_apart(unit->spec.params[static_cast<size_t>(s.param)].name + kind, s));
      }
    };
    each(true,
         [&](const at::Tensor& own, const at::Tensor& values) { at::Tensor(own).copy_(values); });
    for (const checkpoint::LiveTarget& target : owned_targets(model.units(), false))
      elements += target.piece.length;
    EXPECT_TRUE(model.take_loaded().ok());
    each(false, [&](const at::Tensor& held, const at::Tensor& values) {
      EXPECT_TRUE(at::equal(held.to(at::kLong), values)) << setting.name() << " " << optimizer;
    });
    return 0;
  });
  int64_t parameters = 0;
  for (const layout::UnitSpec& unit : spec.units)
    for (const layout::ParamSpec& param : unit.params)
      parameters +=
          param.elements() * (optimizer == OptimizerKind::kMuon && layout::is_muons(param) ? 2 : 3);
  EXPECT_EQ(elements, parameters) << setting.name();
}

TEST(Strategies, WhatOneRankLoadedAllCopiesOfTheStateGet) {
  using enum ShardingStrategy;
  for (const auto optimizer : {OptimizerKind::kAdamW, OptimizerKind::kMuon})
    for (const auto moments : {FloatType::kFloat32, FloatType::kBfloat16}) {
      if (optimizer == OptimizerKind::kMuon && moments == FloatType::kBfloat16) continue;
      for (const Setting& setting :
           {Setting{.world_size = 1}, Setting{.strategy = kFullShard, .world_size = 4},
            Setting{.strategy = kDdp, .world_size = 3},
            Setting{.strategy = kDdp, .world_size = 6, .ranks_of_node = 2},
            Setting{.strategy = kHybrid, .world_size = 4},
            Setting{.strategy = kHybrid, .world_size = 8, .shard_degree = 4},
            Setting{.strategy = kDdp, .world_size = 3, .wrap = WrapPolicy::kNone},
            Setting{.strategy = kHybrid, .world_size = 4, .wrap = WrapPolicy::kNone}})
        expect_whole_copies(setting, optimizer, moments);
    }
}

// Else equal curves would say nothing.
TEST(Strategies, ThePlainSumDependsOnTheWorldSize) {
  for (Reduction reduction : {Reduction::kUnordered, Reduction::kNative}) {
    auto curve = [&](int w) {
      const Setting setting{.world_size = w};
      Config config = setting.config();
      config.training.reduction = reduction;
      return train(setting, 3, config);
    };
    EXPECT_NE(curve(2), curve(3)) << reduction;
  }
}

}  // namespace
}  // namespace lockstep::core
