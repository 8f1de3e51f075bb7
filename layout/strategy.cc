#include "layout/strategy.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "base/text.h"

namespace lockstep::layout {
namespace {

// The most consecutive ranks that are on one node together wherever they begin, and divide W.
int near_ranks(int world_size, const NodeRanks& nodes) {
  return std::gcd(world_size, nodes.together);
}

// Of the largest node: smaller groups would hold more of the state each.
int hybrid_size(const Config& config, int world_size, const NodeRanks& nodes) {
  const int64_t degree = config.parallelism.data_parallel_shard_degree;
  const int64_t wanted = degree > 0 ? degree : nodes.most > 0 ? nodes.most : world_size;
  int size = static_cast<int>(std::clamp<int64_t>(wanted, 1, world_size));
  while (world_size % size != 0) ++size;
  return size;
}

bool keeps_joint_part(const Config::Parallelism& p, const GroupSizes& sizes, int world_size) {
  return p.reshard_after_forward == ReshardAfterForward::kNode && sizes.shard == world_size &&
         sizes.two_legs(world_size);
}

}  // namespace

Strategy Strategy::create(const Config& config, int world_size, const NodeRanks& nodes) {
  const Config::Parallelism& p = config.parallelism;
  Strategy s;
  s.map = slot_map(config, world_size, nodes);
  s.sizes = group_sizes(config, world_size, nodes);
  s.keep_gathered = p.strategy == ShardingStrategy::kShardGradOp;
  s.keep_joint_part = keeps_joint_part(p, s.sizes, world_size);
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
  LOCKSTEP_CHECK(world_size % s.sizes.group == 0 && world_size % s.sizes.shard == 0, world_size,
                 " ranks in groups of ", s.sizes.group, ", ", s.sizes.shard, " to a copy");
  return s;
}

GroupSizes group_sizes(const Config& config, int world_size, const NodeRanks& nodes) {
  const ShardingStrategy strategy = config.parallelism.strategy;
  if (strategy == ShardingStrategy::kHybrid) {
    const int size = hybrid_size(config, world_size, nodes);
    return {size, size};
  }
  const bool whole = strategy == ShardingStrategy::kSingle || strategy == ShardingStrategy::kDdp;
  const int shard = whole ? 1 : world_size, near = near_ranks(world_size, nodes);
  return {shard, near == 1 || near == world_size ? shard : near};
}

std::string reshard_is_idle(const Config& config, int world_size, const NodeRanks& nodes) {
  const Config::Parallelism& p = config.parallelism;
  const GroupSizes sizes = group_sizes(config, world_size, nodes);
  if (p.reshard_after_forward != ReshardAfterForward::kNode ||
      keeps_joint_part(p, sizes, world_size))
    return "";
  const bool one_node = nodes.most == 0 || nodes.most >= world_size;
  return text("parallelism.reshard_after_forward = node changes nothing: ",
              one_node ? "all ranks are on one node"
                       : "the ranks of a node make no group (docs/ARCHITECTURE.md, Strategies)");
}

int slot_group(const Config& config, int world_size, const NodeRanks& nodes) {
  switch (config.parallelism.slot_map) {
    case SlotMapKind::kCyclic: return world_size;
    case SlotMapKind::kBlock: return 1;
    case SlotMapKind::kGroupBlock: break;
  }
  const GroupSizes sizes = group_sizes(config, world_size, nodes);
  if (config.parallelism.strategy == ShardingStrategy::kHybrid) return sizes.group;
  const int near = near_ranks(world_size, nodes);
  return near == 1 && sizes.shard > 1 ? world_size : near;
}

SlotMap slot_map(const Config& config, int world_size, const NodeRanks& nodes) {
  const SlotMap map{config.slots(), world_size, slot_group(config, world_size, nodes)};
  map.check();
  return map;
}

}  // namespace lockstep::layout
