#include "layout/strategy.h"

#include <algorithm>

namespace lockstep::layout {

Strategy Strategy::create(const Config& config, int world_size, int shard_size) {
  const Config::Parallelism& p = config.parallelism;
  Strategy s;
  s.map = slot_map(config, world_size);
  s.shard_size = shard_size;
  s.keep_gathered = p.strategy == ShardingStrategy::kShardGradOp;
  s.forward_prefetch = p.forward_prefetch;
  s.backward_prefetch = p.backward_prefetch;
  s.bf16 = config.training.mixed_precision_param == FloatType::kBfloat16;
  s.offload = config.training.enable_cpu_offload;
  s.muon = config.optimizer.name == OptimizerKind::kMuon;
  s.bf16_moments = config.optimizer.state_dtype == FloatType::kBfloat16;
  // debug.break_rule: tests break one rule of the arithmetic in the production path and must
  // notice.
  s.reduction = config.training.reduction;
  if (config.debug.break_rule == BrokenRule::kRule3) s.reduction = Reduction::kNative;
  if (config.debug.break_rule == BrokenRule::kRule4) s.reduction = Reduction::kUnordered;
  return s;
}

SlotMap slot_map(const Config& config, int world_size) {
  return {config.parallelism.slot_map == SlotMapKind::kBlock && world_size > 1, config.slots(),
          world_size};
}

int shard_size(const Config& config, int world_size, int local_world_size) {
  const ShardingStrategy strategy = config.parallelism.strategy;
  if (strategy == ShardingStrategy::kSingle || strategy == ShardingStrategy::kDdp) return 1;
  if (strategy != ShardingStrategy::kHybrid) return world_size;
  const int64_t degree = config.parallelism.data_parallel_shard_degree;
  const int64_t wanted = degree > 0 ? degree : local_world_size;
  int size = static_cast<int>(std::clamp<int64_t>(wanted, 1, world_size));
  while (world_size % size != 0) ++size;
  return size;
}

}  // namespace lockstep::layout
