// Walks through training steps of rank 0, which always has a slot and the largest shard, as
// core/train/training_step.cc and core/sharding/schedule.cc do, and returns what was live when most
// was. Two steps of at most two rounds: the second one runs with everything that stays in place.
#pragma once

#include "layout/memory_ledger.h"
#include "layout/model_spec.h"

namespace lockstep::layout {

struct Ranks {
  int64_t world_size = 1;
  int64_t per_node = 0;  // what hybrid shards over; 0: all ranks are on one node
};
// Requires a validated config; `spec` is its model.
MemoryLedger walk_training(const Config& config, const ModelSpec& spec, const Ranks& ranks);

}  // namespace lockstep::layout
