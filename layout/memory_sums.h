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

// Of the rank on which it is largest: where a rank or a group has a contiguous run of slots, more
// sums stay open the less the run begins at a node of the canonical tree, and group 0's begins at
// slot 0. It looks at one that computes, at one of the group that needs the most sums at once, and
// where ranks have runs and groups add them, at one of the group with the most open sums.
int64_t most_pooled_sums_bytes(const Strategy& strategy, const std::vector<ShardLayout>& units,
                               const RoundPlan& round);

}  // namespace lockstep::layout
