// How many fp32 sums over slots the units of a rank need together; cases worked out by hand.
#include "layout/memory_sums.h"

#include <gtest/gtest.h>

#include <bit>

namespace lockstep::layout {
namespace {

// W ranks in groups of S, V slots.
Strategy strategy(int64_t slots, int world_size, int shard_size, bool block = false) {
  Strategy s;
  s.map = {slots, world_size, block ? 1 : world_size};
  s.sizes = {shard_size, shard_size};
  return s;
}

// Of rank 0, in owned parts of a unit: `units` alike, each a stage of its own.
int64_t sums(const Strategy& s, int units) {
  const ShardLayout layout = ShardLayout::create(s.map.world_size, s.map.world_size, s.sizes);
  std::vector<StageUnits> stages;
  std::vector<UnitPlace> places;
  for (int unit = 0; unit < units; ++unit) {
    stages.push_back({{unit}});
    places.push_back({unit});
  }
  const std::vector<ShardLayout> layouts(static_cast<size_t>(units), layout);
  return pooled_sums_bytes(s, 0, layouts, RoundPlan::training(stages, places, s)) /
         (layout.owned_elements() * 4);
}

// Slots pushed one by one: the open sums of a unit are the ones in the number of its slots.
TEST(PooledSums, AreWhatIsOpenBetweenRoundsInEveryUnit) {
  for (int64_t slots = 1; slots <= 70; ++slots) {
    int64_t most = 0;
    for (int64_t n = 1; n <= slots; n += 2)
      most = std::max<int64_t>(most, std::popcount(static_cast<uint64_t>(n)));
    EXPECT_EQ(sums(strategy(slots, 1, 1), 3), 3 * most) << slots;
  }
}

// 64 slots arrive together: six sums are open when the last one comes, and one stays.
TEST(PooledSums, OfARoundAreSharedByTheUnits) {
  for (const int units : {1, 2, 80}) {
    EXPECT_EQ(sums(strategy(64, 64, 64), units), units + 5) << units;
    EXPECT_EQ(sums(strategy(128, 64, 64), units), units + 6) << units;  // beside the first round's
    EXPECT_EQ(sums(strategy(256, 64, 64), units), 2 * units + 6) << units;
  }
}

TEST(PooledSums, AreWholeUnitsWhereARankAddsItsSlots) {
  EXPECT_EQ(sums(strategy(14, 2, 2), 1), 3);
  // 0..3, 4..5, 6 on the rank, in two parts each; the owner adds them as they arrive.
  EXPECT_EQ(sums(strategy(14, 2, 2, /*block=*/true), 1), 3 * 2 + 3);
}

TEST(PooledSums, AreHeldPartsWhereAGroupAdds) {
  EXPECT_EQ(sums(strategy(8, 4, 2), 1), 2 + 2);  // pairs arrive: 0..3, 4..5
  Strategy plain = strategy(8, 4, 4);
  plain.reduction = Reduction::kUnordered;
  EXPECT_EQ(sums(plain, 1), 2);  // the step's sum and the round's
}

}  // namespace
}  // namespace lockstep::layout
