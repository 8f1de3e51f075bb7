// W ranks on W simulated devices train the bits that CPUs train, whatever the seed does with the
// order of their work.
#include "tests/unit/core/sim_training.h"
#include "tests/support/seed.h"

namespace lockstep::core {
namespace {

// Under `seeds` seeds the run has the curve of CPUs on which a node keeps nothing.
void check(const SimRun& run, uint64_t seeds) {
  SimRun plain = run;
  plain.setting.reshard = ReshardAfterForward::kWorld;
  const Curve want = train(plain.setting, run.steps, plain.config());
  ASSERT_EQ(want.steps.size(), static_cast<size_t>(run.steps));
  const uint64_t first = test_support::seed_or(1);
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    auto got = train_on_sim(run, {.seed = seed});
    ASSERT_TRUE(got.ok()) << run.setting.name() << " seed " << seed << ": " << got.error().message;
    EXPECT_EQ(got->steps, want.steps) << run.setting.name() << " seed " << seed;
    EXPECT_EQ(got->state, want.state) << run.setting.name() << " seed " << seed;
  }
}

TEST(SimTraining, OneRankTrainsTheCpusBits) {
  for (const bool bf16 : {false, true})
    check({{.strategy = ShardingStrategy::kSingle, .bf16 = bf16}, 3}, 6);
}

TEST(SimTraining, EveryStrategyAndWorldSizeTrainsTheCpusBits) {
  for (const bool bf16 : {false, true})
    for (const ShardingStrategy strategy :
         {ShardingStrategy::kDdp, ShardingStrategy::kFullShard, ShardingStrategy::kShardGradOp,
          ShardingStrategy::kHybrid})
      for (const int w : {2, 3, 4})
        check({{.strategy = strategy, .world_size = w, .bf16 = bf16}, 2}, 2);
}

TEST(SimTraining, TwoLegsBetweenNodesTrainTheCpusBits) {
  for (const ShardingStrategy strategy :
       {ShardingStrategy::kDdp, ShardingStrategy::kFullShard, ShardingStrategy::kShardGradOp})
    for (const SlotMapKind map : {SlotMapKind::kCyclic, SlotMapKind::kGroupBlock}) {
      const Setting nodes{
          .strategy = strategy, .world_size = 4, .bf16 = true, .map = map, .ranks_of_node = 2};
      check({nodes, 2}, 2);
      check({.setting = nodes, .staged = true}, 1);
    }
}

TEST(SimTraining, WhatANodeKeepsOfOtherNodesTrainsTheCpusBits) {
  for (const bool bf16 : {false, true})
    for (const SlotMapKind map : {SlotMapKind::kCyclic, SlotMapKind::kGroupBlock}) {
      const Setting kept{.world_size = 4,
                         .bf16 = bf16,
                         .map = map,
                         .ranks_of_node = 2,
                         .reshard = ReshardAfterForward::kNode};
      Setting offload = kept;
      offload.offload = true;
      check({kept, 2}, 3);
      check({offload, 2}, 1);
      check({.setting = kept, .staged = true}, 1);
    }
}

TEST(SimTraining, SettingsThatMoveWorkAndMemoryTrainTheCpusBits) {
  for (const bool bf16 : {false, true})
    for (const ShardingStrategy strategy :
         {ShardingStrategy::kDdp, ShardingStrategy::kFullShard, ShardingStrategy::kHybrid}) {
      const int w = strategy == ShardingStrategy::kHybrid ? 4 : 2;
      const Setting plain{.strategy = strategy, .world_size = w, .bf16 = bf16};
      Setting offload = plain, blocks = plain, recomputed = plain, late = plain;
      offload.offload = true;
      blocks.map = SlotMapKind::kBlock;
      recomputed.checkpointing = Recompute::kFull;
      late.forward_prefetch = false;
      late.backward_prefetch = BackwardPrefetch::kNone;
      late.wrap = WrapPolicy::kSizeBased;
      for (const Setting& setting : {offload, blocks, recomputed, late}) check({setting, 2}, 2);
    }
}

TEST(SimTraining, CollectivesThroughHostMemoryGiveTheSameBits) {
  for (const ShardingStrategy strategy : {ShardingStrategy::kDdp, ShardingStrategy::kFullShard})
    check({.setting = {.strategy = strategy, .world_size = 2, .bf16 = true}, .staged = true}, 3);
}

TEST(SimTraining, MuonTrainsTheCpusBits) {
  for (const bool offload : {false, true})
    for (const auto& [strategy, w] : {std::pair(ShardingStrategy::kDdp, 2),
                                      {ShardingStrategy::kFullShard, 3},
                                      {ShardingStrategy::kHybrid, 4}})
      check({.setting = {.strategy = strategy, .world_size = w, .bf16 = true, .offload = offload},
             .optimizer = OptimizerKind::kMuon},
            3);
}

TEST(SimTraining, MomentsInBf16AreTheCpusBits) {
  for (const bool offload : {false, true})
    for (const auto& [strategy, w] :
         {std::pair(ShardingStrategy::kDdp, 2), {ShardingStrategy::kFullShard, 3}})
      check({.setting = {.strategy = strategy, .world_size = w, .bf16 = true, .offload = offload},
             .moments = FloatType::kBfloat16},
            3);
}

// A device draws its weights and zeroes its moments: the host's copies of the state are as new (0)
// afterwards.
TEST(SimTraining, InitialWeightsDoNotPassThroughTheHost) {
  const Config config = Setting{.strategy = ShardingStrategy::kSingle}.config();
  const layout::ModelSpec spec = hf::configured_model(config, 40).value();
  size_t untouched = 0, all = 0;
  const auto done = on_sim({.seed = 1}, 1, [&](int rank) -> Result<void> {
    SimGroups groups(1, layout::group_sizes(config, 1, 0));
    const auto mine = groups.of(rank);
    TrainingStep model(config, spec, mine->groups(sim_device().of_rank(rank)));
    LOCKSTEP_RETURN_IF_ERROR(model.initialize(nullptr));
    for (const checkpoint::LiveTarget& target : owned_targets(model.units(), false)) {
      all += target.bytes.size();
      untouched += static_cast<size_t>(std::ranges::count(target.bytes, std::byte{0}));
    }
    return {};
  });
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_GT(all, 0u);
  EXPECT_EQ(untouched, all);
}

// The state as a checkpoint takes it and gives it back: each rank what it owns.
TEST(SimTraining, GoingBackRepeatsTheStep) {
  using enum ShardingStrategy;
  for (const auto& [strategy, world_size] : {std::pair(kFullShard, 2), {kDdp, 2}, {kHybrid, 4}})
    for (const auto& [offload, moments] : {std::pair(false, FloatType::kFloat32),
                                           {true, FloatType::kFloat32},
                                           {false, FloatType::kBfloat16}}) {
      const SimRun run{.setting = {.strategy = strategy,
                                   .world_size = world_size,
                                   .bf16 = true,
                                   .offload = offload},
                       .steps = 3,
                       .moments = moments,
                       .goes_back = true};
      for (uint64_t seed = 1; seed <= 3; ++seed) {
        auto got = train_on_sim(run, {.seed = seed});
        ASSERT_TRUE(got.ok()) << got.error().message;
        ASSERT_EQ(got->steps.size(), 4u);
        EXPECT_EQ(got->steps[3], got->steps[2]) << strategy << " seed " << seed;
      }
    }
}

}  // namespace
}  // namespace lockstep::core
