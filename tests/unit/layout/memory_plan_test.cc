// What can be said of the plan without running anything; tests/multirank/plan.py compares it with
// what the counting allocator measures.
#include "layout/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hf/configured_model.h"
#include "layout/decoder_model.h"
#include "layout/muon_plan.h"

namespace lockstep::layout {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

Config small_run(ShardingStrategy strategy) {
  Config c;
  c.model.dim = 512;
  c.model.n_heads = 8;
  c.model.n_kv_heads = 8;
  c.model.n_layers = 4;
  c.model.vocab_size = 4096;
  c.training.local_batch_size = 1;
  c.training.seq_len = 64;
  c.training.slots = 4;
  c.parallelism.strategy = strategy;
  return c;
}

ModelSpec model_of(const Config& config) { return hf::configured_model(config, 0).value(); }

int64_t peak(const Config& config, int64_t world_size) {
  return plan_memory(config, model_of(config), {world_size}).peak_bytes;
}

int64_t row(const MemoryPlan& plan, const std::string& begins) {
  for (const MemoryRow& r : plan.tensors)
    if (r.what.starts_with(begins)) return r.bytes;
  return 0;
}

// 128 rows are two chunks of a CPU, and one of a GPU.
TEST(MemoryPlan, AGpuSumsNoGradientOfAHeadOfOneChunk) {
  Config config = small_run(ShardingStrategy::kFullShard);
  config.model.vocab_size = 131072;
  config.training.seq_len = 128;
  config.training.mixed_precision_param = FloatType::kBfloat16;
  const ModelSpec spec = model_of(config);
  const auto in_head = [&](WorkSizes sizes, MemoryUse use) {
    const MemoryLedger ledger = walk_training(config, spec, {2, 2, sizes});
    EXPECT_STREQ(ledger.peak_moment().doing, "head and loss");
    return ledger.peak()[static_cast<size_t>(use)];
  };
  const auto sums = [&](WorkSizes sizes) { return in_head(sizes, MemoryUse::kGradSums); };
  const auto logits = [&](WorkSizes sizes) { return in_head(sizes, MemoryUse::kHeadChunk); };
  const int64_t v = config.model.vocab_size, d = config.model.dim, rows = 128;
  EXPECT_EQ(sums(WorkSizes::kCpu) - sums(WorkSizes::kGpu), 4 * v * d);
  EXPECT_EQ(logits(WorkSizes::kGpu), 2 * rows * v);
  config.training.seq_len = 16384;  // two chunks of a GPU, whose factors stay bf16
  EXPECT_EQ(sums(WorkSizes::kCpu), sums(WorkSizes::kGpu));
}

// Llama 3 70B on 64 GPUs, a slot on each. Each unit keeps one sum of the step's slots, and the
// embedding's buffers serve blocks in backward.
TEST(MemoryPlan, UnitsShareSumsAndBuffers) {
  Config config = small_run(ShardingStrategy::kFullShard);
  config.model.dim = 8192;
  config.model.ffn_dim = 28672;
  config.model.n_heads = 64;
  config.model.n_layers = 80;
  config.model.vocab_size = 128256;
  config.training.seq_len = 8192;
  config.training.slots = 64;
  config.training.mixed_precision_param = FloatType::kBfloat16;
  config.activation_checkpoint.mode = Recompute::kFull;
  const ModelSpec spec = model_of(config);
  const MemoryPlan plan = plan_memory(config, spec, {64, 64, WorkSizes::kGpu});
  const int64_t state = row(plan, "parameters: fp32"), sums = row(plan, "gradients: partial");
  EXPECT_GE(sums, state);
  EXPECT_LE(sums, state + state / 10);
  const int64_t block = 2 * spec.units[1].tiles() * kTileElements;
  // Two units are sent and received, one is in backward and two are gathered. Four of these seven
  // buffers are as large as the embedding; beside them is the fp32 sum of its gradient.
  const int64_t embedding = 2 * spec.units[0].tiles() * kTileElements;
  const int64_t pooled = row(plan, "gathered") + row(plan, "gradients: exchange") +
                         row(plan, "gradients: fp32") + row(plan, "pooled");
  EXPECT_LE(pooled, 7 * block + 4 * (embedding - block) + 2 * embedding);
  EXPECT_LE(plan.peak_bytes, int64_t{48} << 30);
  // On nodes of 8 the sums that a node makes of its slots are beside it: three are open when its
  // seventh one comes, of an eighth of the embedding in fp32.
  const MemoryPlan nodes = plan_memory(config, spec, {64, 8, WorkSizes::kGpu});
  EXPECT_LE(row(nodes, "gradients: partial"), sums + 3 * 2 * (embedding / 8));
  EXPECT_LE(nodes.peak_bytes, int64_t{51} << 30);
}

TEST(MemoryPlan, RowsAddUpToThePeak) {
  for (ShardingStrategy strategy : {ShardingStrategy::kDdp, ShardingStrategy::kFullShard}) {
    const Config config = small_run(strategy);
    const MemoryPlan plan = plan_memory(config, model_of(config), {3});
    int64_t sum = 0;
    for (const MemoryRow& r : plan.tensors) sum += r.bytes;
    EXPECT_EQ(sum, plan.peak_bytes) << strategy;
    EXPECT_FALSE(plan.peak_at.empty());
  }
}

// Every parameter of this model is a whole number of tiles, and of tiles on four ranks.
TEST(MemoryPlan, StateIsTwelveBytesAParameterOverTheRanksThatShareIt) {
  Config config = small_run(ShardingStrategy::kFullShard);
  config.model.name = ModelFamily::kLinear;
  const ModelSpec spec = model_of(config);
  const int64_t matrices = 12 * (spec.parameter_count() - config.model.dim);
  const int64_t norm = 12 * kTileElements;  // of the head: one tile, which no rank can share
  const auto state = [&](ShardingStrategy strategy, int64_t w) {
    config.parallelism.strategy = strategy;
    const MemoryPlan plan = plan_memory(config, spec, {w});
    return row(plan, "parameters: fp32") + row(plan, "optimizer");
  };
  EXPECT_EQ(state(ShardingStrategy::kSingle, 1), matrices + norm);
  // The head's unit is padded to a whole number of tiles on each rank.
  EXPECT_NEAR(static_cast<double>(state(ShardingStrategy::kDdp, 4)),
              static_cast<double>(matrices + norm), 4.0 * static_cast<double>(norm));
  EXPECT_NEAR(static_cast<double>(state(ShardingStrategy::kFullShard, 4)),
              static_cast<double>(matrices) / 4, 2.0 * static_cast<double>(norm));
}

// As above, and the tiles are those of two nodes of two.
TEST(MemoryPlan, ANodeKeepsTheModelOnceBetweenItsRanks) {
  Config config = small_run(ShardingStrategy::kFullShard);
  config.model.name = ModelFamily::kLinear;
  config.training.mixed_precision_param = FloatType::kBfloat16;
  const ModelSpec spec = model_of(config);
  const Ranks ranks{4, 2};
  const MemoryPlan world = plan_memory(config, spec, ranks);
  config.parallelism.reshard_after_forward = ReshardAfterForward::kNode;
  const MemoryPlan node = plan_memory(config, spec, ranks);
  int64_t parts = 0;
  for (const UnitSpec& unit : spec.units)
    parts += 2 * ShardLayout::create(unit.tiles(), 4, {4, 2}).joint_elements();
  EXPECT_NEAR(static_cast<double>(parts), static_cast<double>(spec.parameter_count()),
              4.0 * kTileElements);
  EXPECT_EQ(row(world, "parameters kept in the node"), 0);
  EXPECT_EQ(row(node, "parameters kept in the node"), parts);
  EXPECT_EQ(node.peak_bytes, world.peak_bytes + parts);
  const int64_t one_node = plan_memory(config, spec, {4}).peak_bytes;
  config.parallelism.reshard_after_forward = ReshardAfterForward::kWorld;
  EXPECT_EQ(plan_memory(config, spec, {4}).peak_bytes, one_node);
}

// Of the matrices of blocks there is no second moment, in memory or in what a save stages.
int64_t staged(const MemoryPlan& plan) {
  for (const MemoryRow& r : plan.host)
    if (r.what.starts_with("checkpoint: staged")) return r.bytes;
  return 0;
}

TEST(MemoryPlan, MomentsInBf16AreHalfOfThoseInFp32) {
  for (const int64_t w : {1, 4})
    for (const bool offload : {false, true}) {
      Config config = small_run(ShardingStrategy::kFullShard);
      config.training.enable_cpu_offload = offload;
      const ModelSpec spec = model_of(config);
      const MemoryPlan wide = plan_memory(config, spec, {w});
      config.optimizer.state_dtype = FloatType::kBfloat16;
      const MemoryPlan narrow = plan_memory(config, spec, {w});
      EXPECT_EQ(row(narrow, "optimizer"), row(wide, "optimizer") / 2);
      EXPECT_EQ(row(wide, "optimizer") - row(narrow, "optimizer"),
                wide.peak_bytes - narrow.peak_bytes);
      EXPECT_EQ(3 * staged(narrow), 2 * staged(wide));
      EXPECT_EQ(wide.offloaded_bytes - narrow.offloaded_bytes,
                offload ? row(narrow, "optimizer") : 0);
    }
}

TEST(MemoryPlan, MuonHoldsFourBytesLessOfEachOfItsElements) {
  for (const int64_t w : {1, 4}) {
    Config config = small_run(ShardingStrategy::kFullShard);
    const ModelSpec spec = model_of(config);
    const MemoryPlan adamw = plan_memory(config, spec, {w});
    config.optimizer.name = OptimizerKind::kMuon;
    const MemoryPlan muon = plan_memory(config, spec, {w});
    int64_t elements = 0;  // of rank 0
    for (const UnitSpec& unit : spec.units) {
      const auto layout = ShardLayout::create(unit.tiles(), static_cast<int>(w),
                                              {static_cast<int>(w), static_cast<int>(w)});
      elements += muon_elements(
          unit, segments_of(unit, layout.first_held_tile(0), layout.held_tile_count(0)));
    }
    EXPECT_GT(elements, 0);
    EXPECT_EQ(row(adamw, "optimizer") - row(muon, "optimizer"), 4 * elements);
    EXPECT_EQ(staged(adamw) - staged(muon), 4 * elements);
  }
}

TEST(MemoryPlan, ShardingSavesMemoryAndMoreRanksSaveMore) {
  EXPECT_LT(peak(small_run(ShardingStrategy::kFullShard), 4),
            peak(small_run(ShardingStrategy::kDdp), 4));
  EXPECT_LT(peak(small_run(ShardingStrategy::kFullShard), 8),
            peak(small_run(ShardingStrategy::kFullShard), 2));
  EXPECT_LT(peak(small_run(ShardingStrategy::kFullShard), 2),
            peak(small_run(ShardingStrategy::kSingle), 1));
}

TEST(MemoryPlan, HybridHoldsTheShareOfItsGroup) {
  Config config = small_run(ShardingStrategy::kHybrid);
  const ModelSpec spec = model_of(config);
  const auto master = [&](ShardingStrategy strategy, const Ranks& ranks) {
    config.parallelism.strategy = strategy;
    return static_cast<double>(row(plan_memory(config, spec, ranks), "parameters: fp32"));
  };
  const double whole = master(ShardingStrategy::kDdp, {8});
  EXPECT_NEAR(master(ShardingStrategy::kHybrid, {8, 4}), whole / 4, whole / 100);
  EXPECT_NEAR(master(ShardingStrategy::kHybrid, {8, 2}), whole / 2, whole / 100);
  EXPECT_DOUBLE_EQ(master(ShardingStrategy::kHybrid, {8}),
                   master(ShardingStrategy::kFullShard, {8}));
  EXPECT_DOUBLE_EQ(master(ShardingStrategy::kHybrid, {9, 2}),
                   master(ShardingStrategy::kHybrid, {9, 3}));  // 2 does not divide 9
  config.parallelism.data_parallel_shard_degree = 2;
  EXPECT_NEAR(master(ShardingStrategy::kHybrid, {8, 4}), whole / 2, whole / 100);
}

TEST(MemoryPlan, WhatIsGatheredFollowsStrategyAndUnits) {
  Config config = small_run(ShardingStrategy::kFullShard);
  const int64_t by_block = peak(config, 4);
  config.parallelism.wrap_policy = WrapPolicy::kNone;
  EXPECT_GT(peak(config, 4), by_block);
  config.parallelism.wrap_policy = WrapPolicy::kModuleWrap;
  config.parallelism.strategy = ShardingStrategy::kShardGradOp;
  EXPECT_GT(peak(config, 4), by_block);
}

TEST(MemoryPlan, ABlockOfSlotsIsSummedInWholeUnits) {
  Config cyclic = small_run(ShardingStrategy::kFullShard);
  cyclic.training.slots = 14;  // 7 on each of two ranks
  Config block = cyclic;
  block.parallelism.slot_map = SlotMapKind::kBlock;
  EXPECT_GT(peak(block, 2), peak(cyclic, 2));
  EXPECT_EQ(peak(block, 1), peak(cyclic, 1));  // one rank has nothing to ship
}

// V = 1 on two nodes of two is rank 2's; V = 4 on eight of eight leaves ranks 0 and 63 idle.
TEST(MemoryPlan, ARankThatComputesIsPlannedWhereGroupsHaveNoSlot) {
  Config config = small_run(ShardingStrategy::kFullShard);
  config.parallelism.slot_map = SlotMapKind::kGroupBlock;
  const ModelSpec spec = model_of(config);
  for (const auto& [slots, ranks] : {std::pair(1, Ranks{4, 2}), {4, Ranks{64, 8}}}) {
    config.training.slots = slots;
    EXPECT_FALSE(ranks.strategy(config).map.slot(0, 0));
    EXPECT_FALSE(ranks.strategy(config).map.slot(0, static_cast<int>(ranks.world_size) - 1));
    EXPECT_GT(row(plan_memory(config, spec, ranks), "activations"), 0) << slots;
  }
}

TEST(MemoryPlan, Bf16HalvesActivationsAndAddsACopy) {
  Config config = small_run(ShardingStrategy::kSingle);
  const MemoryPlan fp32 = plan_memory(config, model_of(config), {1});
  config.training.mixed_precision_param = FloatType::kBfloat16;
  const MemoryPlan bf16 = plan_memory(config, model_of(config), {1});
  EXPECT_EQ(row(fp32, "parameters: bf16"), 0);
  EXPECT_EQ(2 * row(bf16, "parameters: bf16"), row(bf16, "parameters: fp32"));
  EXPECT_LT(row(bf16, "activations"), row(fp32, "activations"));
}

TEST(MemoryPlan, AModelPastAnyMachineIsPlannedAtOnce) {
  Config config = small_run(ShardingStrategy::kFullShard);
  config.model.dim = 16384;
  config.model.n_heads = config.model.n_kv_heads = 128;
  config.model.n_layers = 126;
  config.model.vocab_size = 128256;
  config.training.slots = 65536;
  const MemoryPlan plan = plan_memory(config, model_of(config), {16384});
  EXPECT_GT(plan.peak_bytes, 1024 * kMiB);
}

TEST(MemoryPlan, OffloadLeavesTheComputeCopyOnTheDevice) {
  Config config = small_run(ShardingStrategy::kFullShard);
  const ModelSpec spec = model_of(config);
  EXPECT_EQ(plan_memory(config, spec, {2}).offloaded_bytes, 0);
  config.training.enable_cpu_offload = true;
  const MemoryPlan fp32 = plan_memory(config, spec, {2});
  EXPECT_EQ(fp32.offloaded_bytes, row(fp32, "optimizer"));
  config.training.mixed_precision_param = FloatType::kBfloat16;
  const MemoryPlan bf16 = plan_memory(config, spec, {2});
  EXPECT_EQ(bf16.offloaded_bytes, row(bf16, "optimizer") + row(bf16, "parameters: fp32"));
}

TEST(MemoryPlan, HostRowsFollowWhatIsAskedFor) {
  Config config = small_run(ShardingStrategy::kFullShard);
  const auto rows = [&] { return plan_memory(config, model_of(config), {2}).host.size(); };
  const size_t with_checkpoints = rows();
  config.checkpoint.memory_interval = 1;
  EXPECT_EQ(rows(), with_checkpoints + 1);
  config.checkpoint.memory_interval = 0;
  config.checkpoint.enable = false;
  EXPECT_EQ(rows(), with_checkpoints - 2);
}

// Peers elsewhere share their buffers: a run of 2,048 takes no more than one of two nodes.
TEST(MemoryPlan, LibrariesTakeMoreOfAGpuWithPeersOfTheNodeAndNotWithThoseElsewhere) {
  const Config config = small_run(ShardingStrategy::kFullShard);
  const auto bytes = [&](Ranks ranks) {
    int64_t sum = 0;
    for (const MemoryRow& r : plan_memory(config, model_of(config), ranks).gpu) sum += r.bytes;
    return sum;
  };
  constexpr int64_t kRings = 32 * 12;  // MiB, of all links together
  EXPECT_EQ(bytes({1}), 32 * kMiB);
  EXPECT_EQ(bytes({8}), (32 + 7 * 16 * 12 + kRings) * kMiB);
  // In two legs: four links, of which two exchange, one with the node and one through the network.
  for (const int64_t ranks : {16, 64, 2048, 16384})
    EXPECT_EQ(bytes({ranks, 8}), (32 + 7 * 8 * 12 + (1 + 1) * 8 * 2 + kRings) * kMiB) << ranks;
}

// Links share what a rank has: 16 channels of two, 8 of four, 6 of five, 10 of three.
TEST(MemoryPlan, LibrariesTakeOfAGpuWhatTheLinksOfAStrategyNeed) {
  Config config = small_run(ShardingStrategy::kFullShard);
  const auto bytes = [&](Ranks ranks) {
    int64_t sum = 0;
    for (const MemoryRow& r : plan_memory(config, model_of(config), ranks).gpu) sum += r.bytes;
    return sum;
  };
  // One rank a node, and nodes of unlike numbers: one leg, with two links.
  EXPECT_EQ(bytes({16, 1}), (32 + 2 * 16 * 2 + 32 * 12) * kMiB);
  EXPECT_EQ(bytes({5, 3}), (32 + 2 * 4 * 12 + (3 + 1) * 16 * 2 + 32 * 12) * kMiB);
  // Groups of half a node: a peer of two is on the node.
  config.parallelism.strategy = ShardingStrategy::kHybrid;
  config.parallelism.data_parallel_shard_degree = 4;
  EXPECT_EQ(bytes({16, 8}), (32 + 3 * 8 * 12 + 1 * 4 * 12 + (2 + 1) * 8 * 2 + 32 * 12) * kMiB);
  config = small_run(ShardingStrategy::kFullShard);
  config.optimizer.name = OptimizerKind::kMuon;  // whose matrices go to all ranks
  EXPECT_EQ(bytes({16, 8}), (32 + 7 * 6 * 12 + 7 * 2 * 12 + (2 + 9) * 6 * 2 + 30 * 12) * kMiB);
  config = small_run(ShardingStrategy::kFullShard);
  config.training.reduction = Reduction::kNative;
  EXPECT_EQ(bytes({16, 8}), (32 + 7 * 4 * 12 + 9 * 10 * 2 + 30 * 12) * kMiB);
}

TEST(MemoryPlan, SpeedLeftIsThatOfTheRounds) {
  EXPECT_DOUBLE_EQ(speed_left(64, 64, 56), 0.5);  // a second round, for 8 slots
  EXPECT_DOUBLE_EQ(speed_left(128, 64, 56), 2.0 / 3);
  EXPECT_DOUBLE_EQ(speed_left(256, 64, 56), 0.8);
  EXPECT_DOUBLE_EQ(speed_left(48, 64, 56), 1.0);  // those that are gone were idle
}

TEST(MemoryPlan, OccupancyIsTheShareOfTheRoundsThatHaveASlot) {
  EXPECT_EQ(occupancy(6, 4).rounds, 2);
  EXPECT_DOUBLE_EQ(occupancy(6, 4).busy, 0.75);
  EXPECT_DOUBLE_EQ(occupancy(6, 3).busy, 1.0);
  EXPECT_DOUBLE_EQ(occupancy(2, 8).busy, 0.25);  // more ranks than slots: they hold shards
}

Config with_slots(int64_t slots) {
  Config config;
  config.training.slots = slots;
  return config;
}

TEST(IdleRanks, WhoHasNoSlotIsCountedAndTheSlotsThatKeepAllBusyAreSaid) {
  EXPECT_EQ(
      idle_ranks_warning(with_slots(6), 16),
      "10 of 16 ranks compute nothing: a step has 6 slots (training.slots), and one rank computes "
      "each slot. The global batch is slots times training.local_batch_size sequences for any "
      "number of ranks; a new run with --training.slots 16 keeps all of them busy");
  EXPECT_THAT(idle_ranks_warning(with_slots(1), 2), testing::HasSubstr("--training.slots 2 keeps"));
}

TEST(IdleRanks, ALastRoundThatLeavesManyIdleIsSaid) {
  EXPECT_THAT(idle_ranks_warning(with_slots(9), 8),
              testing::StartsWith("7 of 8 ranks compute nothing in the last of the 2 rounds of a "
                                  "step, 44 % of the ranks' time: a step has 9 slots"));
  EXPECT_THAT(idle_ranks_warning(with_slots(9), 8),
              testing::HasSubstr("with --training.slots 16 keeps"));
  EXPECT_EQ(idle_ranks_warning(with_slots(8), 3), "");  // 11 %
  EXPECT_EQ(idle_ranks_warning(with_slots(16), 8), "");
}

TEST(IdleRanks, TheAdviceNeverContradictsTheConfig) {
  Config config;  // 4 slots
  EXPECT_THAT(idle_ranks_warning(config, 8), testing::HasSubstr("with --training.slots 8 keeps"));
  config.training.local_batch_size = 3;
  config.training.global_batch_size = 12;
  EXPECT_THAT(idle_ranks_warning(config, 8),
              testing::HasSubstr("with --training.global_batch_size 24 keep"));
  config.training.slots = 4;
  EXPECT_THAT(idle_ranks_warning(config, 8),
              testing::HasSubstr("with --training.slots 8 --training.global_batch_size 24 keeps"));
}

// Who follows the advice is not advised again, and nobody below the limit is.
TEST(IdleRanks, ItIsSaidWhereMuchIsIdleAndNowhereElse) {
  for (int64_t slots = 1; slots <= 40; ++slots)
    for (int64_t ranks = 1; ranks <= 40; ++ranks) {
      const bool much = ranks > slots || 1.0 - occupancy(slots, ranks).busy > kMuchIdle;
      EXPECT_EQ(!idle_ranks_warning(with_slots(slots), ranks).empty(), much) << slots << ranks;
      EXPECT_EQ(idle_ranks_warning(with_slots(occupancy(slots, ranks).rounds * ranks), ranks), "");
    }
}

TEST(MemoryPlan, TheLargestBatchFitsAndOneMoreDoesNot) {
  Config config = small_run(ShardingStrategy::kFullShard);
  const ModelSpec spec = model_of(config);
  const int64_t room = peak(config, 2) + 200 * kMiB;
  const auto found = largest_batch(config, spec, {2}, room);
  ASSERT_TRUE(found.has_value());
  EXPECT_LE(found->device_bytes, room);
  config.training.local_batch_size = found->batch_size;
  EXPECT_EQ(peak(config, 2), found->device_bytes);
  config.training.local_batch_size = found->batch_size + 1;
  EXPECT_GT(peak(config, 2), room);
  EXPECT_FALSE(largest_batch(config, spec, {2}, kMiB).has_value());
}

TEST(MemoryPlan, TheLargestModelFitsAndTheNextDoesNot) {
  const Config config = small_run(ShardingStrategy::kFullShard);
  const DecoderShape shape = model_of(config).shape;
  const int64_t room = 2048 * kMiB;
  const auto found = largest_model(config, shape, ScalingStrategy::kLayers, {2}, room);
  ASSERT_TRUE(found.has_value());
  DecoderShape next = found->shape;
  EXPECT_LE(plan_memory(config, create(next), {2}).peak_bytes, room);
  ++next.n_layers;
  EXPECT_GT(plan_memory(config, create(next), {2}).peak_bytes, room);

  Config whole = config;
  whole.parallelism.strategy = ShardingStrategy::kDdp;
  const auto replicated = largest_model(whole, shape, ScalingStrategy::kLayers, {2}, room);
  ASSERT_TRUE(replicated.has_value());
  EXPECT_LT(replicated->parameters, found->parameters);
  EXPECT_FALSE(largest_model(config, shape, ScalingStrategy::kLayers, {2}, kMiB).has_value());
}

TEST(MemoryPlan, ScalingKeepsHeadsAsWideAsTheyAre) {
  DecoderShape shape = model_of(small_run(ShardingStrategy::kSingle)).shape;
  shape.n_kv_heads = 2;
  const DecoderShape twice = scaled(shape, ScalingStrategy::kAll, 2);
  EXPECT_EQ(twice.head_dim, shape.head_dim);
  EXPECT_EQ(twice.n_heads, 2 * shape.n_heads);
  EXPECT_EQ(twice.n_kv_heads, 2 * shape.n_kv_heads);
  EXPECT_EQ(twice.dim, twice.n_heads * twice.head_dim);
  EXPECT_EQ(twice.n_layers, 2 * shape.n_layers);
  EXPECT_EQ(twice.ffn_dim % 64, 0);
  const DecoderShape deeper = scaled(shape, ScalingStrategy::kLayers, 2.5);
  EXPECT_EQ(deeper.n_layers, 10);
  EXPECT_EQ(deeper.dim, shape.dim);
  shape.windows = {0, 16, 0, 16};
  EXPECT_EQ(scaled(shape, ScalingStrategy::kLayers, 2).windows,
            (std::vector<int64_t>{0, 16, 0, 16, 0, 16, 0, 16}));
}

}  // namespace
}  // namespace lockstep::layout
