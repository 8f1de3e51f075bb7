// The fp32 sums over slots (core/sharding/fold_tree.h) of all units, in bytes. They come from a
// pool of their own that the units share. A sum goes back to it when it was added to another one or
// was shipped, and the sum of a step when the state was updated with it.
#pragma once

#include <vector>

#include "layout/round_plan.h"
#include "layout/shard_layout.h"

namespace lockstep::layout {

// Bytes of that pool on `rank`, once it grows no more. It counts all rounds of a step, for how many
// sums stay open between two of them differs. `units`: as they are gathered, in the order of
// `round`.
int64_t pooled_sums_bytes(const Strategy& strategy, int rank, const std::vector<ShardLayout>& units,
                          const RoundPlan& round);

}  // namespace lockstep::layout
