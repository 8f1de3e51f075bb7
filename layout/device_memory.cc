#include "layout/device_memory.h"

#include <algorithm>
#include <bit>

#include "layout/shard_layout.h"
#include "layout/stage_work.h"
#include "layout/wrap.h"

namespace lockstep::layout {
namespace {

int64_t gib(double n) { return static_cast<int64_t>(n * static_cast<double>(1 << 30)); }

// Forward: a log sum for each row and head, of all layers that keep theirs. Backward,
// cudnn_attention.cc: the products of scores of a call's heads, and d(qkv); cuda_attention.cc: sums
// of dq in fp32; dq, dk and dv, of all query heads and of key heads.
int64_t attention_bytes(const Config& config, const ModelSpec& spec, const DeviceRates& rates) {
  const StageWork work(config, spec, rates);
  if (spec.shape.family == ModelFamily::kLinear || !work.fused_on_gpu()) return 0;
  const DecoderShape& s = spec.shape;
  const int64_t length = config.training.seq_len, batch = config.training.local_batch_size;
  const int64_t rows = batch * length;
  const int64_t query = rows * s.n_heads * s.head_dim, key = rows * s.n_kv_heads * s.head_dim;
  const int64_t expanded = s.n_heads == s.n_kv_heads ? 0 : 2 * query;
  const bool keeps = config.activation_checkpoint.mode == Recompute::kNone;
  const int64_t sums = (keeps ? s.n_layers : 1) * rows * s.n_heads * kFloat;
  int64_t most = 0;
  for (int64_t layer = 0; layer < s.n_layers; ++layer) {
    const int64_t heads_at_once =
        key_heads_at_once(batch, length, s.n_heads, s.n_kv_heads) * (s.n_heads / s.n_kv_heads);
    most = std::max(most, work.cudnn(layer) ? 2 * rows * length * heads_at_once
                                            : work.flash_splits() * query * kFloat +
                                                  2 * (query + 2 * key + expanded));
  }
  return sums + most;
}

// State that is offloaded is page-locked, and what is updated passes through a buffer. Other state
// is read by saves through two (core/device/block_copies.h); where ranks hold copies of it, one
// that is loaded (ShardState::host) takes more than what is staged of it afterwards.
std::vector<MemoryRow> state_rows(const MemoryPlan& plan, const Config& config,
                                  const ModelSpec& spec, const Strategy& strategy) {
  int64_t locked = 0, largest = 0, loaded = 0;
  for (const WrappedUnit& run :
       wrap(spec, config.parallelism.wrap_policy, config.parallelism.min_num_params)) {
    if (run.spec.frozen) continue;
    const int64_t held = strategy.layout_of(run.spec).held_elements();
    locked += 3 * page_locked_bytes(held * kFloat);
    largest = std::max(largest, held);
    loaded += held * (kFloat + 2 * strategy.moment_bytes());
  }
  std::vector<MemoryRow> rows;
  if (strategy.offload) {
    rows.push_back({"page-locked: master, m and v", locked});
    if (strategy.bf16)
      rows.push_back({"page-locked: copy back to the device", page_locked_bytes(2 * largest)});
    return rows;
  }
  for (const MemoryRow& row : plan.host) {
    if (row.what != kStagedRow) continue;
    rows.push_back({"page-locked: buffers of a save",
                    kSaveBuffers * std::min(kSaveBufferBytes, page_locked_bytes(row.bytes))});
    // A run that goes back loads while a staged copy has its memory.
    if (config.training.nan_policy == NanPolicy::kRollback)
      rows.push_back({"a state that is loaded on a rollback", loaded});
    else if (loaded > row.bytes && strategy.sizes.shard < strategy.map.world_size)
      rows.push_back({"a state that is loaded, beyond the staged copy", loaded - row.bytes});
  }
  return rows;
}

int64_t sum_of(const std::vector<MemoryRow>& rows) {
  int64_t sum = 0;
  for (const MemoryRow& row : rows) sum += row.bytes;
  return sum;
}

}  // namespace

int64_t page_locked_bytes(int64_t bytes) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(bytes)));
}

DeviceMemory device_memory(const MemoryPlan& plan, const Config& config, const ModelSpec& spec,
                           const Ranks& ranks, const DeviceRates& rates) {
  DeviceMemory memory;
  memory.device = {{"tensors, peak", plan.device_bytes()},
                   {"attention, in addition to the plan's", attention_bytes(config, spec, rates)}};
  memory.device.insert(memory.device.end(), plan.gpu.begin(), plan.gpu.end());
  memory.device.push_back({"context and libraries", gib(rates.context_gib)});
  memory.host = state_rows(plan, config, spec, ranks.strategy(config));
  if (config.launcher.max_restarts > 0) {
    const char* const ready = "standby process";
    memory.device.push_back({ready, gib(rates.context_gib)});
    memory.host.push_back({ready, kSaveBuffers * kSaveBufferBytes});
  }
  memory.host.insert(memory.host.end(), plan.host.begin(), plan.host.end());
  memory.device_bytes = sum_of(memory.device);
  memory.host_bytes = sum_of(memory.host);
  memory.capacity_bytes = gib(rates.memory_gib);
  return memory;
}

}  // namespace lockstep::layout
