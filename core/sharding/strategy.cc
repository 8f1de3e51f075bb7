#include "core/sharding/strategy.h"

namespace lockstep::core {

Strategy Strategy::create(const Config& config, at::Device device) {
  const Config::Parallelism& p = config.parallelism;
  Strategy s;
  s.keep_gathered = p.strategy == ShardingStrategy::kShardGradOp;
  s.forward_prefetch = p.forward_prefetch;
  s.backward_prefetch = p.backward_prefetch;
  s.block_slots = p.slot_map == SlotMapKind::kBlock;
  const bool narrow = config.training.mixed_precision_param == FloatType::kBfloat16;
  s.compute = narrow ? at::kBFloat16 : at::kFloat;
  s.device = device;
  s.offload = config.training.enable_cpu_offload;
  // debug.break_rule: tests break one rule of the arithmetic in the production path and must
  // notice.
  const BrokenRule broken = config.debug.break_rule;
  s.reduction = broken == BrokenRule::kRule3   ? Reduction::kNative
                : broken == BrokenRule::kRule4 ? Reduction::kUnordered
                                               : config.training.reduction;
  return s;
}

}  // namespace lockstep::core
