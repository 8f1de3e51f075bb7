#include "core/sharding/strategy.h"

#include <algorithm>

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

int shard_size(const Config& config, int world_size, int local_world_size) {
  const std::string& name = config.parallelism.strategy;
  if (name == "single" || name == "ddp") return 1;
  if (name != "hybrid") return world_size;
  const int64_t wanted = config.parallelism.data_parallel_shard_degree;
  int size = wanted > 0 ? static_cast<int>(std::min<int64_t>(wanted, world_size))
                        : std::clamp(local_world_size, 1, world_size);
  while (world_size % size != 0) ++size;
  return size;
}

}  // namespace lockstep::core
