// Training on a GPU: ranks as threads that share it, collectives through host memory.
#include <c10/cuda/CUDACachingAllocator.h>
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "core/device/devices.h"
#include "core/train/state_pieces.h"
#include "hf/configured_model.h"
#include "tests/unit/core/strategies.h"

namespace lockstep::core {
namespace {

const at::Device kFirstGpu(at::kCUDA, 0);

Curve curve_of(const Setting& setting, int64_t steps) {
  return train(setting, steps, setting.config(), kFirstGpu);
}

TEST(GpuTraining, WhoComputesASlotDoesNotMoveABit) {
  for (const bool bf16 : {false, true}) {
    const Curve want = curve_of({.strategy = ShardingStrategy::kSingle, .bf16 = bf16}, 6);
    ASSERT_EQ(want.steps.size(), 6u);
    EXPECT_EQ(curve_of({.strategy = ShardingStrategy::kSingle, .bf16 = bf16}, 6), want) << "again";
    for (ShardingStrategy strategy : {ShardingStrategy::kDdp, ShardingStrategy::kFullShard,
                                      ShardingStrategy::kShardGradOp, ShardingStrategy::kHybrid})
      for (const int w : {2, 3, 4}) {
        const Setting setting{.strategy = strategy, .world_size = w, .bf16 = bf16};
        EXPECT_EQ(curve_of(setting, 6), want) << setting.name();
      }
    const Setting blocks{.strategy = ShardingStrategy::kDdp,
                         .world_size = 2,
                         .bf16 = bf16,
                         .map = SlotMapKind::kBlock};
    EXPECT_EQ(curve_of(blocks, 6), want) << blocks.name();
  }
}

// AdamW and tile norms have the same bits on both.
TEST(GpuTraining, OffloadDoesNotMoveABit) {
  for (const bool bf16 : {false, true}) {
    const Setting setting{.world_size = 2, .bf16 = bf16};
    Setting offload = setting;
    offload.offload = true;
    EXPECT_EQ(curve_of(offload, 6), curve_of(setting, 6));
  }
}

TEST(GpuTraining, LossesAreThoseOfTheCpuToAFewRoundings) {
  const Setting setting{.strategy = ShardingStrategy::kSingle};
  const Curve gpu = curve_of(setting, 3), cpu = train(setting, 3, setting.config());
  for (size_t i = 0; i < 3; ++i)
    EXPECT_NEAR(std::strtod(gpu.steps[i].c_str(), nullptr),
                std::strtod(cpu.steps[i].c_str(), nullptr), 1e-4);
}

struct OneRank {
  explicit OneRank(const Config& c)
      : config(c), spec(hf::configured_model(config, 40).value()), groups(1, {1, 1}) {
    model =
        std::make_unique<TrainingStep>(config, spec, on_device(groups.of(0), kFirstGpu, staged));
    EXPECT_TRUE(model->initialize(nullptr).ok());
  }
  std::string step(
      int64_t number, const std::function<void()>& before_update = [] {}) {
    int64_t slot = 0;
    auto outcome = model->run(
        number, 1e-2, [] { return RankFlags{}; },
        [&]() -> Result<data::SlotBatch> { return batch_of(config, number, slot++); },
        before_update);
    return outcome.ok() ? text(hex_float(outcome->loss), " ", hex_float(outcome->grad_norm))
                        : outcome.error().message;
  }
  Config config;
  layout::ModelSpec spec;
  ThreadGroups groups;
  Staged staged;
  std::unique_ptr<TrainingStep> model;
};

// The pieces that a checkpoint writes and reads, through small page-locked buffers, while the next
// step is computed.
TEST(GpuTraining, StateSavedAndLoadedGoesOnWithTheSameBits) {
  const Config config = Setting{.strategy = ShardingStrategy::kSingle, .bf16 = true}.config();
  OneRank first(config), second(config);
  for (int64_t step = 1; step <= 3; ++step) first.step(step);
  const auto live = LiveState::of(first.model->units(), /*buffer_bytes=*/64 << 10);
  const auto targets = owned_targets(second.model->units(), false);
  ASSERT_EQ(live->layout().size(), targets.size());
  checkpoint::StateSource::Reading reading;
  reading.take = [&](const checkpoint::StateSource::Part& part) -> Result<void> {
    std::memcpy(targets[part.piece].bytes.data() + part.offset, part.bytes.data(),
                part.bytes.size());
    return {};
  };
  std::promise<void> given;
  reading.may_change = [&] { given.set_value(); };
  live->freeze();
  std::jthread reader([&] { EXPECT_TRUE(live->read(reading).ok()); });
  const std::string fourth = first.step(4, [&] {
    given.get_future().wait();
    live->thaw();
  });
  reader.join();
  ASSERT_TRUE(second.model->take_loaded().ok());
  EXPECT_EQ(second.step(4), fourth);
  for (int64_t step = 5; step <= 6; ++step) EXPECT_EQ(second.step(step), first.step(step)) << step;
}

// Parameters, gradients and optimizer state of the layers drop to about a quarter on four ranks;
// what is gathered stays, and cuBLAS's workspaces. Bytes of the caching allocator, all ranks
// together: 0.54 of ddp's on an H100.
TEST(GpuTraining, FullShardHoldsLessThanDdp) {
  const auto peak_of = [](ShardingStrategy strategy) {
    Setting setting{.strategy = strategy, .world_size = 4};
    Config config = setting.config();
    config.model.dim = 512;
    config.model.n_layers = 8;
    config.model.ffn_dim = 1536;
    c10::cuda::CUDACachingAllocator::emptyCache();
    c10::cuda::CUDACachingAllocator::resetPeakStats(0);
    train(setting, 2, config, kFirstGpu);
    return local_device().memory()->max_allocated_bytes;
  };
  EXPECT_LT(peak_of(ShardingStrategy::kFullShard), peak_of(ShardingStrategy::kDdp) / 10 * 6);
}

}  // namespace
}  // namespace lockstep::core
