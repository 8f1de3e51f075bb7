// How many fp32 sums over slots the units of a rank need together; cases worked out by hand.
#include "layout/memory_sums.h"

#include <gtest/gtest.h>

#include <bit>

namespace lockstep::layout {
namespace {

// W ranks in groups of S, V slots.
Strategy sharded(int64_t slots, int world_size, int shard_size, bool block = false) {
  Strategy s;
  s.map = {slots, world_size, block ? 1 : world_size};
  s.sizes = {shard_size, shard_size};
  return s;
}

// `count` units alike, each a stage of its own.
struct Units {
  std::vector<ShardLayout> layouts;
  RoundPlan round;
  Units(const Strategy& s, int count)
      : layouts(static_cast<size_t>(count),
                ShardLayout::create(s.map.world_size, s.map.world_size, s.sizes)) {
    std::vector<StageUnits> stages;
    std::vector<UnitPlace> places;
    for (int unit = 0; unit < count; ++unit) {
      stages.push_back({{unit}});
      places.push_back({unit});
    }
    round = RoundPlan::training(stages, places, s);
  }
};

int64_t bytes_of(const Strategy& s, const Units& units, int rank) {
  return pooled_sums_bytes(s, rank, units.layouts, units.round);
}

// Of rank 0, in owned parts of a unit.
int64_t sums(const Strategy& s, int count) {
  const Units units(s, count);
  return bytes_of(s, units, 0) / (units.layouts[0].owned_elements() * 4);
}

// Slots pushed one by one: the open sums of a unit are the ones in the number of its slots.
TEST(PooledSums, AreWhatIsOpenBetweenRoundsInEveryUnit) {
  for (int64_t slots = 1; slots <= 70; ++slots) {
    int64_t most = 0;
    for (int64_t n = 1; n <= slots; n += 2)
      most = std::max<int64_t>(most, std::popcount(static_cast<uint64_t>(n)));
    EXPECT_EQ(sums(sharded(slots, 1, 1), 3), 3 * most) << slots;
  }
}

// 64 slots arrive together, eight are added at once: three sums are open when the last eight are
// added to them, and one stays.
TEST(PooledSums, OfARoundAreSharedByTheUnits) {
  for (const int units : {1, 2, 80}) {
    EXPECT_EQ(sums(sharded(64, 64, 64), units), units + 2) << units;
    EXPECT_EQ(sums(sharded(128, 64, 64), units), units + 3) << units;  // beside the first round's
    EXPECT_EQ(sums(sharded(256, 64, 64), units), 2 * units + 3) << units;
  }
}

TEST(PooledSums, AreWholeUnitsWhereARankAddsItsSlots) {
  EXPECT_EQ(sums(sharded(14, 2, 2), 1), 3);
  // 0..3, 4..5, 6 on the rank, in two parts each; the owner adds them as they arrive.
  EXPECT_EQ(sums(sharded(14, 2, 2, /*block=*/true), 1), 3 * 2 + 3);
}

TEST(PooledSums, AreHeldPartsWhereAGroupAdds) {
  EXPECT_EQ(sums(sharded(8, 4, 2), 1), 2 + 1);  // pairs arrive together: 0..3
  Strategy plain = sharded(8, 4, 4);
  plain.reduction = Reduction::kUnordered;
  EXPECT_EQ(sums(plain, 1), 2);  // the step's sum and the round's
}

// V = 64 on 7 groups of 8 gives runs of 9 and 10. Group 0's begins at 0, and of its first 8 slots
// one sum stays open; of 9 to 16 four do: 9, 10 and 11, 12 to 15, 16.
TEST(PooledSums, AreThoseOfTheGroupThatKeepsTheMostOpen) {
  Strategy s;
  s.map = {64, 56, 8};
  s.sizes = {56, 8};
  EXPECT_EQ(s.map.run_of_groups(1), (SlotRun{9, 9}));
  const Units units(s, 80);
  const int64_t joint = units.layouts[0].joint_elements() * 4;
  const int64_t most = most_pooled_sums_bytes(s, units.layouts, units.round);
  EXPECT_GE(most - bytes_of(s, units, 0), 80 * 2 * joint);
  for (int group = 0; group < 7; ++group) EXPECT_GE(most, bytes_of(s, units, group * 8)) << group;
}

// Whatever the numbers: of groups that take slots together, and of ranks that have runs, alone and
// in groups. There, where who has the most of its own is not in the group with the most, a part of
// one unit may be missing.
TEST(PooledSums, CoverEveryRank) {
  for (const bool block : {false, true})
    for (const int size : {1, 2, 3, 4})
      for (int groups = 2; groups <= 6; ++groups)
        for (const int64_t slots : {1, 5, 13, 24, 37, 64, 96}) {
          const int w = size * groups;
          Strategy s;
          s.map = {slots, w, block ? 1 : size};
          s.sizes = {w, size == 1 ? w : size};
          const Units units(s, 6);
          const int64_t bytes = most_pooled_sums_bytes(s, units.layouts, units.round);
          for (int rank = 0; rank < w; ++rank)
            EXPECT_GE(bytes + (block ? units.layouts[0].owned_elements() * 4 : 0),
                      bytes_of(s, units, rank))
                << "V=" << slots << " W=" << w << " G=" << size << " block " << block << " rank "
                << rank;
        }
}

}  // namespace
}  // namespace lockstep::layout
