#include "core/sharding/strategy.h"

namespace lockstep::core {

Strategy Strategy::create(const Config& config, at::Device device) {
  const Config::Parallelism& p = config.parallelism;
  Strategy s;
  s.keep_gathered = p.strategy == "shard_grad_op";
  s.forward_prefetch = p.forward_prefetch;
  if (p.backward_prefetch == "BACKWARD_POST") s.backward_prefetch = BackwardPrefetch::kPost;
  if (p.backward_prefetch == "NONE") s.backward_prefetch = BackwardPrefetch::kNone;
  s.block_slots = p.slot_map == "block";
  s.compute = config.training.mixed_precision_param == "bfloat16" ? at::kBFloat16 : at::kFloat;
  s.device = device;
  s.offload = config.training.enable_cpu_offload;
  // debug.break_rule: tests break one rule of the arithmetic in the production path and must
  // notice.
  const std::string& broken = config.debug.break_rule;
  if (broken == "3" || config.training.reduction == "native") s.reduction = Reduction::kNative;
  if (broken == "4" || config.training.reduction == "unordered")
    s.reduction = Reduction::kUnordered;
  return s;
}

}  // namespace lockstep::core
