// Memory of a GPU and of its host (layout/device_memory.h).
#include "layout/device_memory.h"

#include <gtest/gtest.h>

#include "tests/unit/layout/small_model.h"

namespace lockstep::layout {
namespace {

Config small(ShardingStrategy strategy) {
  return small_config(strategy, /*vocab_size=*/4096, /*slots=*/8);
}

TEST(DeviceMemory, CountsTheContextAndWhatIsPageLocked) {
  EXPECT_EQ(page_locked_bytes(1024), 1024);
  EXPECT_EQ(page_locked_bytes(1025), 2048);
  const Config config = small(ShardingStrategy::kFullShard);
  const ModelSpec spec = model_of(config);
  const Ranks ranks{8, 8};
  const MemoryPlan plan = plan_memory(config, spec, ranks);
  DeviceRates rates = *built_in_device("h100");
  const DeviceMemory memory = device_memory(plan, config, spec, ranks, rates);
  int64_t device = 0, host = 0;
  for (const MemoryRow& row : memory.device) device += row.bytes;
  for (const MemoryRow& row : memory.host) host += row.bytes;
  EXPECT_EQ(device, memory.device_bytes);
  EXPECT_EQ(host, memory.host_bytes);
  EXPECT_GT(memory.device_bytes, plan.device_bytes() + (int64_t{3} << 28));  // 0.75 GiB
  EXPECT_TRUE(memory.fits());
  rates.memory_gib = 1;
  EXPECT_FALSE(device_memory(plan, config, spec, ranks, rates).fits());
}

int64_t row_of(const std::vector<MemoryRow>& rows, const std::string& what) {
  for (const MemoryRow& row : rows)
    if (row.what == what) return row.bytes;
  return -1;
}

TEST(DeviceMemory, OfAStateOnADeviceTwoBuffersArePageLocked) {
  const std::string buffers = "page-locked: buffers of a save",
                    whole = "page-locked: master, m and v",
                    loaded = "a state that is loaded, beyond the staged copy";
  const auto rows = [](Config config, ShardingStrategy strategy) {
    config.parallelism.strategy = strategy;
    const ModelSpec spec = model_of(config);
    const Ranks ranks{8, 8};
    return device_memory(plan_memory(config, spec, ranks), config, spec, ranks,
                         *built_in_device("h100"))
        .host;
  };
  Config config = small(ShardingStrategy::kFullShard);
  config.checkpoint.enable = true;
  const auto full = rows(config, ShardingStrategy::kFullShard);
  const int64_t state = row_of(full, kStagedRow);
  EXPECT_EQ(row_of(full, buffers), 2 * std::min(kSaveBufferBytes, page_locked_bytes(state)));
  EXPECT_EQ(row_of(full, whole), -1);
  EXPECT_EQ(row_of(full, loaded), -1);
  const auto ddp = rows(config, ShardingStrategy::kDdp);
  EXPECT_GT(row_of(ddp, loaded), 6 * row_of(ddp, kStagedRow)) << "each rank loads all of it";
  Config larger = config;
  larger.model.n_layers *= 64;
  const auto large = rows(larger, ShardingStrategy::kFullShard);
  EXPECT_GT(row_of(large, kStagedRow), 2 * kSaveBufferBytes);
  EXPECT_EQ(row_of(large, buffers), 2 * kSaveBufferBytes);
  config.checkpoint.enable = false;
  EXPECT_EQ(row_of(rows(config, ShardingStrategy::kFullShard), buffers), -1);
  config.training.enable_cpu_offload = true;
  const auto offloaded = rows(config, ShardingStrategy::kFullShard);
  EXPECT_GT(row_of(offloaded, whole), 0);
  EXPECT_EQ(row_of(offloaded, buffers), -1);
}

TEST(DeviceMemory, AProcessThatIsKeptReadyHasAContextAndBuffersOfItsOwn) {
  Config config = small(ShardingStrategy::kFullShard);
  const auto memory = [&] {
    const ModelSpec spec = model_of(config);
    const Ranks ranks{8, 8};
    return device_memory(plan_memory(config, spec, ranks), config, spec, ranks,
                         *built_in_device("h100"));
  };
  const DeviceMemory with = memory();
  config.launcher.max_restarts = 0;
  const DeviceMemory without = memory();
  const std::string ready = "standby process";
  EXPECT_EQ(row_of(with.device, ready), row_of(with.device, "context and libraries"));
  EXPECT_EQ(row_of(without.device, ready), -1);
  EXPECT_EQ(with.device_bytes - without.device_bytes, int64_t{3} << 28);
  EXPECT_EQ(with.host_bytes - without.host_bytes, int64_t{128} << 20) << "two buffers of a save";
}

}  // namespace
}  // namespace lockstep::layout
