#include "layout/strategy.h"

#include <algorithm>
#include <numeric>

namespace lockstep::layout {
namespace {

// The most ranks that are on one node together, and divide W.
int near_ranks(int world_size, int ranks_of_node) {
  return ranks_of_node > 0 ? std::gcd(world_size, ranks_of_node) : world_size;
}

int hybrid_size(const Config& config, int world_size, int ranks_of_node) {
  const int64_t degree = config.parallelism.data_parallel_shard_degree;
  const int64_t wanted = degree > 0 ? degree : ranks_of_node > 0 ? ranks_of_node : world_size;
  int size = static_cast<int>(std::clamp<int64_t>(wanted, 1, world_size));
  while (world_size % size != 0) ++size;
  return size;
}

}  // namespace

Strategy Strategy::create(const Config& config, int world_size, int ranks_of_node) {
  const Config::Parallelism& p = config.parallelism;
  Strategy s;
  s.map = slot_map(config, world_size, ranks_of_node);
  s.sizes = group_sizes(config, world_size, ranks_of_node);
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

GroupSizes group_sizes(const Config& config, int world_size, int ranks_of_node) {
  const ShardingStrategy strategy = config.parallelism.strategy;
  if (strategy == ShardingStrategy::kHybrid) {
    const int size = hybrid_size(config, world_size, ranks_of_node);
    return {size, size};
  }
  const bool whole = strategy == ShardingStrategy::kSingle || strategy == ShardingStrategy::kDdp;
  const int shard = whole ? 1 : world_size, near = near_ranks(world_size, ranks_of_node);
  return {shard, near == 1 || near == world_size ? shard : near};
}

int slot_group(const Config& config, int world_size, int ranks_of_node) {
  switch (config.parallelism.slot_map) {
    case SlotMapKind::kCyclic: return world_size;
    case SlotMapKind::kBlock: return 1;
    case SlotMapKind::kGroupBlock: break;
  }
  if (config.parallelism.strategy == ShardingStrategy::kHybrid)
    return group_sizes(config, world_size, ranks_of_node).group;
  return near_ranks(world_size, ranks_of_node);
}

SlotMap slot_map(const Config& config, int world_size, int ranks_of_node) {
  return {config.slots(), world_size, slot_group(config, world_size, ranks_of_node)};
}

}  // namespace lockstep::layout
