#include "core/sharding/strategy.h"

namespace lockstep::core {

Strategy Strategy::create(const Config& config) {
  Strategy s;
  s.name = config.parallelism.strategy;
  s.replicate_state = s.name != "full_shard";
  s.forward_prefetch = config.parallelism.forward_prefetch;
  s.backward_prefetch = config.parallelism.backward_prefetch != "NONE";
  s.compute = config.training.mixed_precision_param == "bfloat16" ? at::kBFloat16 : at::kFloat;
  // debug.break_rule: tests break one rule of the arithmetic in the production path and must
  // notice.
  const std::string& broken = config.debug.break_rule;
  if (broken == "3" || config.training.reduction == "native") s.reduction = Reduction::kNative;
  if (broken == "4" || config.training.reduction == "unordered")
    s.reduction = Reduction::kUnordered;
  return s;
}

}  // namespace lockstep::core
