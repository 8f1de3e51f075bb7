// Walks through training steps of a rank that computes, rank 0 where it does, as
// core/train/training_step.cc does: through the items of a round (round_plan.h), with the exchanges
// of an ExchangePlan. Sums of slots, and pieces that arrive, are those of the rank that has the
// most. The ledger says what was live when most was.
#pragma once

#include "layout/memory_ledger.h"
#include "layout/model_spec.h"
#include "layout/stage_sizes.h"
#include "layout/strategy.h"

namespace lockstep::layout {

struct Ranks {
  int64_t world_size = 1;
  int64_t per_node = 0;               // 0: all ranks are on one node
  WorkSizes sizes = WorkSizes::kCpu;  // of what they compute on
  bool first_alone = false;           // what rank 0 needs, and not who needs most

  Strategy strategy(const Config& config) const;
  // reshard_is_idle (strategy.h)
  std::string idle_reshard(const Config& config) const;
};
// Two steps of at most two rounds, the first and the last one of a step: the second step runs with
// everything that stays in place. In both rounds it computes, as some rank does.
// Requires a validated config; `spec` is its model.
MemoryLedger walk_training(const Config& config, const ModelSpec& spec, const Ranks& ranks);

}  // namespace lockstep::layout
