// The arithmetic of a step's time, by hand. bench/plan_time.py compares it with measured steps.
#include "layout/step_time.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "layout/muon_plan.h"
#include "layout/stage_work.h"
#include "layout/step_clocks.h"
#include "tests/unit/layout/small_model.h"

namespace lockstep::layout {
namespace {

// A GPU on which all figures come out even, and nothing costs anything beside its work.
DeviceRates even_gpu() {
  DeviceRates r = *built_in_device("h100");
  r.name = "even";
  r.bf16_peak_tflops = r.bf16_gemm_tflops = r.fp32_gemm_tflops = 1;
  r.attention_share = r.attention_backward_share = 1;
  r.memory_gb_per_s = 1000;
  r.bf16_kernel_share = r.fp32_kernel_share = 1;
  r.exponentials_per_ns = 1;
  r.kernel_us = r.launch_us = r.collective_us = r.host_collective_us = 0;
  r.ranks_per_node = 4;
  r.node_gb_per_s = 100;
  r.network_gb_per_s = 10;
  r.host_network_gb_per_s = 1;
  return r;
}

Config timed_run(ShardingStrategy strategy, int64_t slots = 8) {
  // Chunks of 64 rows.
  return small_config(strategy, /*vocab_size=*/131072, slots);
}

StepTime time_of(const Config& config, int64_t world_size, const DeviceRates& rates) {
  return plan_step_time(config, model_of(config), {world_size}, rates);
}

double sum_of(const StepTime& time) {
  double sum = 0;
  for (const PhaseTime& phase : time.phases) sum += phase.seconds;
  return sum;
}

const Operation* look_for(const Operations& ops, std::string_view what) {
  for (const Operation& op : ops)
    if (op.what == what) return &op;
  return nullptr;
}
const Operation& find(const Operations& ops, std::string_view what) {
  static const Operation none;
  const Operation* const found = look_for(ops, what);
  EXPECT_NE(found, nullptr) << "no " << what;
  return found != nullptr ? *found : none;
}

TEST(Operation, TakesTheLongestOfItsFlopsBytesAndExponentials) {
  const DeviceRates r = even_gpu();
  EXPECT_DOUBLE_EQ(seconds_of({.engine = Engine::kProduct, .flops = 2e12, .bytes = 1e12}, r), 2);
  EXPECT_DOUBLE_EQ(seconds_of({.engine = Engine::kProduct, .flops = 1e12, .bytes = 3e12}, r), 3);
  EXPECT_DOUBLE_EQ(seconds_of({.bytes = 1e12, .exps = 4e9}, r), 4);
  EXPECT_DOUBLE_EQ(seconds_of({.bytes = 1e12, .serial_s = 5}, r), 5);
  EXPECT_DOUBLE_EQ(seconds_of({.bytes = 1e12, .times = 6}, r), 6);
}

TEST(Operation, OurKernelsReachAShareAndEachKernelCostsSomething) {
  DeviceRates r = even_gpu();
  r.bf16_kernel_share = 0.5;
  r.fp32_kernel_share = 0.25;
  r.attention_backward_share = 0.1;
  EXPECT_DOUBLE_EQ(seconds_of({.width = 2, .bytes = 1e12}, r), 2);
  EXPECT_DOUBLE_EQ(seconds_of({.width = 4, .bytes = 1e12}, r), 4);
  EXPECT_DOUBLE_EQ(seconds_of({.engine = Engine::kCopy, .bytes = 1e12}, r), 1);
  EXPECT_DOUBLE_EQ(seconds_of({.engine = Engine::kAttentionBackward, .flops = 1e12}, r), 10);
  r.kernel_us = 2e6;
  EXPECT_DOUBLE_EQ(seconds_of({.engine = Engine::kCopy, .bytes = 1e12, .times = 3}, r), 9);
}

TEST(StageWork, ABlocksProductsAreThoseOfItsMatrices) {
  const Config config = timed_run(ShardingStrategy::kSingle);
  const ModelSpec spec = model_of(config);
  const DeviceRates rates = even_gpu();
  const StageWork work(config, spec, rates);
  double flops = 0, backward = 0, matrices = 0;
  for (const Operation& op : work.layer_forward(0))
    if (op.engine == Engine::kProduct) flops += op.flops;
  for (const Operation& op : work.layer_backward(0))
    if (op.engine == Engine::kProduct) backward += op.flops;
  for (const ParamSpec& param : spec.units[1].params)
    if (param.decays()) matrices += static_cast<double>(param.elements());
  EXPECT_DOUBLE_EQ(flops, 2 * 128 * matrices);
  EXPECT_DOUBLE_EQ(backward, 2 * flops);
}

// 128 rows of 512 in bf16. On a GPU eight rows have a part of the weight's gradient in fp32.
TEST(StageWork, NormsMoveEachTensorOnce) {
  const Config config = timed_run(ShardingStrategy::kSingle);
  const ModelSpec spec = model_of(config);
  DeviceRates rates = even_gpu();
  const double x = 128 * 512 * 2, parts = 128.0 / 8 * 512 * 4;
  const StageWork work(config, spec, rates);
  EXPECT_DOUBLE_EQ(find(work.layer_forward(0), "residual, norm").bytes, 4 * x);
  EXPECT_DOUBLE_EQ(find(work.layer_backward(0), "norm, backward").bytes, 4 * x + parts);
  EXPECT_DOUBLE_EQ(find(work.head(), "norm, backward").bytes, 3 * x + parts);
  const Operation& sums = find(work.layer_backward(0), "sums of norms' gradients");
  EXPECT_DOUBLE_EQ(static_cast<double>(sums.times) * sums.bytes, parts);
  rates.multiprocessors = 0;
  const StageWork cpu(config, spec, rates);
  EXPECT_DOUBLE_EQ(find(cpu.layer_backward(0), "norm, backward").bytes, 4 * x);
  EXPECT_EQ(look_for(cpu.layer_backward(0), "sums of norms' gradients"), nullptr);
}

TEST(StageSizes, AChunkOfTheHeadFillsNamedMemoryOnEachKindOfDevice) {
  for (const int64_t width : {2, 4}) {  // a CPU's does not depend on the type
    EXPECT_EQ(head_chunk_rows(WorkSizes::kCpu, 128256, width), 64);
    EXPECT_EQ(head_chunk_rows(WorkSizes::kCpu, 32000, width), 256);
    EXPECT_EQ(head_chunk_rows(WorkSizes::kCpu, 50257, width), 128);
    EXPECT_EQ(head_chunk_rows(WorkSizes::kCpu, 256, width), 32768);
    EXPECT_EQ(head_chunk_rows(WorkSizes::kCpu, 1 << 20, width), 64);
    EXPECT_EQ(head_chunk_rows(WorkSizes::kGpu, 1 << 20, width), 2048);
    for (const int64_t vocab : {1000, 32000, 50257, 128256, 151936, 256000}) {
      const int64_t rows = head_chunk_rows(WorkSizes::kGpu, vocab, width);
      EXPECT_GE(rows, 2048);
      EXPECT_LE(rows * vocab * width, int64_t{2} << 30);
      EXPECT_GT((rows + 64) * vocab * width, int64_t{2} << 30);
    }
  }
  EXPECT_EQ(head_chunk_rows(WorkSizes::kGpu, 128256, 2), 8320);  // a slot of 8,192 tokens is one
  EXPECT_EQ(head_chunk_rows(WorkSizes::kGpu, 128256, 4), 4160);
}

// 128 rows in two chunks on a CPU: each reads and writes the fp32 sum of the weight's gradient. One
// on a GPU: it writes the gradient.
TEST(StageWork, EachOfSeveralChunksOfTheHeadReadsAndWritesTheSumOfTheWeightsGradient) {
  const Config config = timed_run(ShardingStrategy::kSingle);
  const ModelSpec spec = model_of(config);
  DeviceRates rates = even_gpu();
  const double v = 131072, d = 512;
  const char *const kGradient = "logits, weight's gradient",
                    *const kZeroed = "sum of the weight's gradient, zeroed";
  {
    const Operations ops = StageWork(config, spec, rates).head();
    const double n = 128;
    EXPECT_EQ(find(ops, "logits").times, 1);
    EXPECT_DOUBLE_EQ(find(ops, "logits").bytes, 2 * (n * d + v * d + n * v));
    EXPECT_DOUBLE_EQ(find(ops, "cross-entropy").bytes, 3 * 2 * n * v);
    EXPECT_EQ(find(ops, kGradient).times, 1);
    EXPECT_DOUBLE_EQ(find(ops, kGradient).bytes, 2 * (n * d + v * d + n * v));
    EXPECT_EQ(look_for(ops, kZeroed), nullptr);
    EXPECT_EQ(look_for(ops, "sum as bf16"), nullptr);
  }
  rates.multiprocessors = 0;
  const Operations ops = StageWork(config, spec, rates).head();
  const double n = 64;
  EXPECT_EQ(find(ops, "logits").times, 2);
  EXPECT_DOUBLE_EQ(find(ops, "cross-entropy").bytes, 2 * 2 * n * v);
  EXPECT_EQ(find(ops, kGradient).times, 2);
  EXPECT_DOUBLE_EQ(find(ops, kGradient).flops, 2 * n * v * d);
  EXPECT_DOUBLE_EQ(find(ops, kGradient).bytes, 4 * n * (v + d) + 8 * v * d);
  EXPECT_DOUBLE_EQ(find(ops, kZeroed).bytes, 4 * v * d);
}

// The last chunk of a slot may be a smaller one: all rows are computed once.
TEST(StageWork, TheChunksOfTheHeadAreTheRowsOfTheSlot) {
  Config config = timed_run(ShardingStrategy::kSingle);
  for (const int64_t rows : {128, 8128, 8192, 20000}) {  // chunks of 8,192
    config.training.seq_len = rows;
    const ModelSpec spec = model_of(config);
    double flops = 0, exponentials = 0;
    for (const Operation& op : StageWork(config, spec, *built_in_device("h100")).head()) {
      flops += op.flops * static_cast<double>(op.times);
      exponentials += op.exps * static_cast<double>(op.times);
    }
    EXPECT_DOUBLE_EQ(flops, 3 * 2.0 * static_cast<double>(rows) * 131072 * 512) << rows;
    EXPECT_DOUBLE_EQ(exponentials, 2.0 * static_cast<double>(rows) * 131072) << rows;
  }
}

// A tied weight's gradient is summed with the embedding's; so is that of a slot of several chunks.
TEST(StageWork, AGpuSumsTheHeadsGradientWhereItIsInSeveralParts) {
  Config config = timed_run(ShardingStrategy::kSingle);
  const DeviceRates rates = even_gpu();
  const auto zeroed = [&](const ModelSpec& spec) {
    const Operations ops = StageWork(config, spec, rates).head();
    return look_for(ops, "sum of the weight's gradient, zeroed") != nullptr;
  };
  config.training.seq_len = 16384;
  EXPECT_TRUE(zeroed(model_of(config)));
  config.training.seq_len = 8192;
  EXPECT_FALSE(zeroed(model_of(config)));
  DecoderShape shape = shape_of_keys(config, 0).value();
  shape.tied = true;
  EXPECT_TRUE(zeroed(create(shape, config.lora)));
}

TEST(StageWork, FusedAttentionOfAGpuSeesHalfOfThePairsAndAWindowFewer) {
  Config config = timed_run(ShardingStrategy::kSingle);
  ModelSpec spec = model_of(config);
  const DeviceRates rates = even_gpu();
  const StageWork work(config, spec, rates);
  EXPECT_DOUBLE_EQ(work.scores(0), 8 * 128 * 129 / 2);
  EXPECT_EQ(work.flash_splits(), (132 + 7) / 8);
  EXPECT_DOUBLE_EQ(find(work.layer_forward(0), "attention").flops, 4 * 64 * work.scores(0));
  EXPECT_DOUBLE_EQ(find(work.layer_backward(0), "attention, backward").flops,
                   10 * 64 * work.scores(0));
  spec.shape.windows.assign(4, 2);  // a query sees itself and the one before
  EXPECT_DOUBLE_EQ(StageWork(config, spec, rates).scores(0), 8 * (1 + 127 * 2));
  config.model.fused_attention = false;
  EXPECT_DOUBLE_EQ(StageWork(config, spec, rates).scores(0), 8 * 128 * 128);
}

TEST(StageWork, OnHopperAttentionIsCudnnsWhereThatHasIt) {
  const Config config = timed_run(ShardingStrategy::kSingle);
  ModelSpec spec = model_of(config);
  DeviceRates rates = even_gpu();
  const auto copies_dq = [&] {
    return look_for(StageWork(config, spec, rates).layer_backward(0), "dq") != nullptr;
  };
  rates.compute_capability = 8;
  EXPECT_TRUE(copies_dq());
  rates.compute_capability = 9;
  EXPECT_FALSE(copies_dq());
  EXPECT_DOUBLE_EQ(find(StageWork(config, spec, rates).layer_forward(0), "attention").share, 0.55);
  spec.shape.windows.assign(4, 2);
  EXPECT_TRUE(copies_dq()) << "it has windows";
  spec.shape.windows.clear();
  spec.shape.head_dim = 256;
  EXPECT_TRUE(copies_dq()) << "heads of 256";
}

// Products of scores of 2 GiB at most, of whole groups of heads, each of which has a key head.
TEST(StageSizes, KeyHeadsAtOnce) {
  EXPECT_EQ(key_heads_at_once(2, 1024, 14, 2), 2);
  EXPECT_EQ(key_heads_at_once(1, 8192, 32, 8), 4);
  EXPECT_EQ(key_heads_at_once(1, 8192, 32, 32), 16);
  EXPECT_EQ(key_heads_at_once(1, 8192, 24, 6), 3);  // 4 do not divide 6
  EXPECT_EQ(key_heads_at_once(1, 16384, 32, 8), 1);
  EXPECT_EQ(key_heads_at_once(1, 32768, 32, 8), 0);
}

TEST(Transfer, GathersComeIntoANodeOnceAndExchangesStraightFromEach) {
  const DeviceRates r = even_gpu();
  // One node of 4: three quarters of 400 GB at 100 GB/s.
  EXPECT_DOUBLE_EQ(all_gather(400e9, {4, 1, 4}, r).seconds, 3);
  // Two nodes of 4: half of 80 GB comes in through four ranks' network of 10 GB/s.
  EXPECT_DOUBLE_EQ(all_gather(80e9, {8, 1, 4}, r).seconds, 1);
  EXPECT_DOUBLE_EQ(all_gather(80e9, {8, 1, 4}, r).far_bytes, 10e9);
  // Ranks 0, 4: one a node.
  EXPECT_DOUBLE_EQ(all_gather(80e9, {2, 4, 4}, r).seconds, 4);
  EXPECT_DOUBLE_EQ(all_gather(80e9, {1, 1, 4}, r).seconds, 0);
  // Three parts from the node, four from the other one.
  const Transfer t = all_to_all(10e9, 8, {8, 1, 4}, r);
  EXPECT_DOUBLE_EQ(t.near_bytes, 30e9);
  EXPECT_DOUBLE_EQ(t.far_bytes, 40e9);
  EXPECT_DOUBLE_EQ(t.seconds, 4);
}

constexpr size_t kForward = static_cast<size_t>(StepPhase::kForward),
                 kGather = static_cast<size_t>(StepPhase::kGatherWait);

TEST(StepClocks, ACollectiveTravelsWhileTheDeviceComputes) {
  DeviceRates r = even_gpu();
  StepClocks clocks(r);
  const double done = clocks.start(StepPhase::kGatherWait, {.seconds = 3});
  clocks.compute(StepPhase::kForward, {{.bytes = 2e12}});
  clocks.wait_until(StepPhase::kGatherWait, done);
  EXPECT_DOUBLE_EQ(clocks.phases()[kForward].seconds, 2);
  EXPECT_DOUBLE_EQ(clocks.phases()[kGather].seconds, 1);
  // Not before what the device was given ahead of it; one after the other.
  clocks.compute(StepPhase::kForward, {{.bytes = 2e12}});
  EXPECT_DOUBLE_EQ(clocks.start(StepPhase::kGatherWait, {.seconds = 1}), 6);
  EXPECT_DOUBLE_EQ(clocks.start(StepPhase::kGatherWait, {.seconds = 1}), 7);
  // A CPU computes nothing meanwhile.
  r.multiprocessors = 0;
  StepClocks cpu(r);
  cpu.start(StepPhase::kGatherWait, {.seconds = 3});
  cpu.compute(StepPhase::kForward, {{.bytes = 2e12}});
  EXPECT_DOUBLE_EQ(cpu.phases()[kGather].seconds, 3);
  EXPECT_DOUBLE_EQ(cpu.phases()[kForward].seconds, 2);
}

TEST(StepClocks, LaunchesAreThePriceWhereKernelsAreShort) {
  DeviceRates r = even_gpu();
  r.launch_us = 1e6;
  StepClocks clocks(r);
  clocks.compute(StepPhase::kForward, {{.bytes = 1e10, .times = 5}});
  EXPECT_DOUBLE_EQ(clocks.phases()[kForward].seconds, 5);
}

// Of the even device alone: 28 bytes and 2 for the copy; 8 for the squares, 8 a tile for their sums
// and 8 for digests; 6 for a first slot.
TEST(StepTime, StateCostsItsBytesOnce) {
  const Config config = timed_run(ShardingStrategy::kSingle, 1);
  const ModelSpec spec = model_of(config);
  const StepTime time = time_of(config, 1, even_gpu());
  const double elements = static_cast<double>(spec.tiles() * kTileElements);
  EXPECT_NEAR(time.at(StepPhase::kUpdate).seconds, 30 * elements / 1e12, 1e-9);
  EXPECT_NEAR(time.at(StepPhase::kFold).seconds, 6 * elements / 1e12, 1e-9);
  constexpr int64_t kNodes = 45;  // of the norm's tree, over this model's units
  EXPECT_NEAR(time.at(StepPhase::kNorm).seconds,
              (16 * elements + 8 * static_cast<double>(spec.tiles())) / 1e12 + 30e-9 * kNodes,
              1e-12);
  EXPECT_EQ(time.received.seconds, 0);
}

// 20 bytes in place of 28; and 26 in place of 34 of the host's memory.
TEST(StepTime, MomentsInBf16MoveHalfTheirBytes) {
  for (const bool offload : {false, true}) {
    Config config = timed_run(ShardingStrategy::kSingle, 1);
    config.training.enable_cpu_offload = offload;
    const DeviceRates rates = even_gpu();
    const double elements = static_cast<double>(model_of(config).tiles() * kTileElements);
    const double wide = time_of(config, 1, rates).at(StepPhase::kUpdate).seconds;
    config.optimizer.state_dtype = FloatType::kBfloat16;
    const double narrow = time_of(config, 1, rates).at(StepPhase::kUpdate).seconds;
    const double bytes_per_s = offload ? rates.host_memory_gb_per_s * 1e9 : 1e12;
    EXPECT_NEAR(wide - narrow, 8 * elements / bytes_per_s, 1e-9) << offload;
  }
}

// 24 bytes of an element that is Muon's in place of 28, and the products, which all ranks share.
TEST(StepTime, MuonAddsTheWorkOfItsMatrices) {
  Config config = timed_run(ShardingStrategy::kFullShard);
  const ModelSpec spec = model_of(config);
  double elements = 0, flops = 0;
  for (const UnitSpec& unit : spec.units)
    for (const ParamSpec& p : unit.params)
      if (is_muons(p)) {
        elements += static_cast<double>(p.tiles() * kTileElements);
        flops += MuonMatrix{0, 0, p.shape[0], p.shape[1], 0}.flops();
      }
  const auto update = [&](OptimizerKind optimizer, int64_t world_size) {
    config.optimizer.name = optimizer;
    return time_of(config, world_size, even_gpu()).at(StepPhase::kUpdate);
  };
  const PhaseTime adamw = update(OptimizerKind::kAdamW, 1), muon = update(OptimizerKind::kMuon, 1);
  EXPECT_NEAR(muon.seconds - adamw.seconds, flops / 1e12 - 4 * elements / 1e12, 1e-6);
  EXPECT_DOUBLE_EQ(muon.flops, flops);
  const double of_four = update(OptimizerKind::kMuon, 4).flops;
  EXPECT_GE(of_four, flops / 4);
  EXPECT_LE(of_four, flops / 3);
}

TEST(StepTime, WhatCrossesDoesNotGrowWithTheSlotsWhereANodeKeepsWhatCame) {
  using enum ReshardAfterForward;
  const auto far_bytes = [](int64_t slots, ReshardAfterForward reshard) {
    Config config = timed_run(ShardingStrategy::kFullShard, slots);
    config.parallelism.slot_map = SlotMapKind::kGroupBlock;
    config.parallelism.reshard_after_forward = reshard;
    return time_of(config, 8, even_gpu()).received.far_bytes;
  };
  EXPECT_DOUBLE_EQ(far_bytes(32, kNode), far_bytes(8, kNode));
  EXPECT_LT(far_bytes(8, kNode), far_bytes(8, kWorld));
  EXPECT_GT(far_bytes(32, kWorld), 1.3 * far_bytes(8, kWorld));
}

// Four slots, one by one: a first, one added, a first, one added with two sums. Four that arrive
// together are read once, and their sum is written; a second four take one sum with them.
TEST(StepTime, TheFoldAddsAsTheTreeDoes) {
  const Config one = timed_run(ShardingStrategy::kSingle, 4);
  const double elements = static_cast<double>(model_of(one).tiles() * kTileElements);
  EXPECT_NEAR(time_of(one, 1, even_gpu()).at(StepPhase::kFold).seconds,
              (6 + 10 + 6 + 14) * elements / 1e12, 1e-9);
  const auto of_four = [](int64_t slots) {
    return time_of(timed_run(ShardingStrategy::kFullShard, slots), 4, even_gpu())
        .at(StepPhase::kFold)
        .bytes;
  };
  EXPECT_GE(of_four(4), (4 * 2 + 4) * elements / 4);
  EXPECT_NEAR(of_four(8), (1 + 16.0 / 12) * of_four(4), 1);
}

TEST(StepTime, PhasesSumToTheStepAndMfuIsItsFlops) {
  for (const ShardingStrategy strategy :
       {ShardingStrategy::kDdp, ShardingStrategy::kFullShard, ShardingStrategy::kHybrid,
        ShardingStrategy::kShardGradOp})
    for (const int64_t w : {2, 8, 12}) {
      const Config config = timed_run(strategy, 12);
      const StepTime time = time_of(config, w, *built_in_device("h100"));
      EXPECT_DOUBLE_EQ(sum_of(time), time.total_s) << strategy << " " << w;
      EXPECT_NEAR(time.tokens_per_s, 12 * 128 / time.total_s, 1e-6);
      EXPECT_NEAR(time.mfu,
                  time.tokens_per_s * model_of(config).flops_per_token(128) /
                      (static_cast<double>(w) * 989e12),
                  1e-12);
      for (const PhaseTime& phase : time.phases) EXPECT_GE(phase.seconds, 0);
    }
}

// Each rate, doubled or halved where it is a cost: no step gets slower, and some step gets faster.
TEST(StepTime, ABetterDeviceIsNeverSlower) {
  for (const RateField& field : rate_fields()) {
    const std::string key = field.key;
    if (key.ends_with("_gib") || key == "ranks_per_node" || key == "multiprocessors" ||
        key == "compute_capability")
      continue;
    bool faster = false;
    for (const bool bf16 : {false, true})
      for (const bool offload : {false, true}) {
        Config config = timed_run(ShardingStrategy::kHybrid, 16);
        config.training.enable_cpu_offload = offload;
        config.activation_checkpoint.mode = Recompute::kFull;
        config.training.seq_len = 4096;  // products that take longer than their launch
        if (!bf16) config.training.mixed_precision_param = FloatType::kFloat32;
        DeviceRates better = *built_in_device("a100");
        const double before = time_of(config, 16, better).total_s;
        better.*field.member *= key.ends_with("_us") ? 0.5 : 2;
        const double after = time_of(config, 16, better).total_s;
        EXPECT_LE(after, before * (1 + 1e-12)) << key;
        faster |= after < before * (1 - 1e-9);
      }
    EXPECT_TRUE(faster || key == "bf16_peak_tflops" || key == "exponentials_per_ns") << key;
  }
}

TEST(StepTime, CheckpointingComputesAgainAndMoreRanksComputeLess) {
  Config config = timed_run(ShardingStrategy::kFullShard, 16);
  const DeviceRates& h100 = *built_in_device("h100");
  EXPECT_EQ(time_of(config, 8, h100).at(StepPhase::kRecompute).seconds, 0);
  const double two = time_of(config, 2, h100).total_s, eight = time_of(config, 8, h100).total_s;
  EXPECT_LT(eight, two);
  config.activation_checkpoint.mode = Recompute::kFull;
  EXPECT_GT(time_of(config, 8, h100).at(StepPhase::kRecompute).seconds, 0);
  EXPECT_GT(time_of(config, 8, h100).total_s, eight);
}

std::vector<TomlNumber> numbers() {
  std::vector<TomlNumber> all;
  for (const RateField& field : rate_fields())
    all.push_back({field.key, (*built_in_device("a100")).*field.member, "rates.toml:1"});
  return all;
}

TEST(DeviceRates, AFileHasTheKeysOfABuiltInDeviceAndEachErrorNamesItsKey) {
  const auto read = rates_of("mine", numbers());
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read.value().name, "mine");
  for (const RateField& field : rate_fields())
    EXPECT_EQ(read.value().*field.member, (*built_in_device("a100")).*field.member) << field.key;

  const auto said = [](const std::vector<TomlNumber>& all, const std::string& words) {
    const auto rates = rates_of("mine", all);
    ASSERT_FALSE(rates.ok()) << words;
    EXPECT_EQ(rates.error().code, Code::kConfig);
    EXPECT_NE(rates.error().message.find(words), std::string::npos) << rates.error().message;
  };
  auto wrong = numbers();
  wrong[3].key = "fp32_gemm_tflop";
  said(wrong, "unknown key fp32_gemm_tflop; did you mean fp32_gemm_tflops?");
  auto missing = numbers();
  missing.erase(missing.begin() + 5);
  said(missing, rate_fields()[5].key);
  for (const double bad : {0.0, -1.0, std::nan("")}) {
    auto timed_run = numbers();
    timed_run[1].value = bad;
    said(timed_run, "bf16_gemm_tflops");
  }
}

TEST(DeviceRates, BuiltInDevicesAreWhole) {
  EXPECT_EQ(built_in_devices(), "h100, h200, a100, gh200");
  EXPECT_EQ(built_in_device("h1000"), nullptr);
  for (const char* name : {"h100", "h200", "a100", "gh200"}) {
    const DeviceRates& d = *built_in_device(name);
    EXPECT_TRUE(d.gpu());
    for (const RateField& field : rate_fields())
      EXPECT_GE(d.*field.member, field.least) << name << " " << field.key;
    EXPECT_LT(d.bf16_gemm_tflops, d.bf16_peak_tflops);
  }
}

}  // namespace
}  // namespace lockstep::layout
