// Which rank has which tiles, and which slots.
#include "layout/shard_layout.h"

#include <gtest/gtest.h>

#include "layout/slot_map.h"

namespace lockstep::layout {
namespace {

// All that there are on w ranks.
std::vector<GroupSizes> sizes_of(int w) {
  std::vector<GroupSizes> all;
  for (int g = 1; g <= w; ++g) {
    if (w % g != 0) continue;
    all.push_back({g, g});
    if (g > 1) all.push_back({1, g});
    if (g < w) all.push_back({w, g});
  }
  return all;
}

TEST(ShardLayout, PartsAreOwnedOnceAndHeldByEveryCopy) {
  for (int64_t tiles : {1, 2, 7, 64, 65})
    for (int w = 1; w <= 9; ++w)
      for (const GroupSizes& sizes : sizes_of(w)) {
        const ShardLayout layout = ShardLayout::create(tiles, w, sizes);
        int64_t next = 0;
        for (int part = 0; part < w; ++part) {
          const int r = layout.owner_of(part);
          EXPECT_EQ(layout.part_of(r), part);
          EXPECT_EQ(layout.first_tile(r), std::min(next, tiles));
          next = layout.first_tile(r) + layout.tile_count(r);
          if (layout.tile_count(r) == 0) continue;
          EXPECT_GE(layout.first_tile(r), layout.first_held_tile(r));
          EXPECT_LE(next, layout.first_held_tile(r) + layout.held_tile_count(r));
          EXPECT_EQ(layout.owned_offset(r),
                    (layout.first_tile(r) - layout.first_held_tile(r)) * kTileElements);
        }
        EXPECT_EQ(next, tiles);
        int64_t held = 0;
        for (int r = 0; r < w; ++r) held += layout.held_tile_count(r);
        EXPECT_EQ(held, tiles * layout.copies());
      }
}

TEST(ShardLayout, SegmentsCoverEveryElementOnceWithoutPadding) {
  const UnitSpec unit{"u", {{"a", {5000}, 0}, {"b", {3, 4096}, 0}, {"c", {7}, 0}}};
  for (int w = 1; w <= 7; ++w) {
    const ShardLayout layout = ShardLayout::create(unit.tiles(), w, {w, w});
    std::vector<std::vector<int>> seen{std::vector<int>(5000), std::vector<int>(3 * 4096),
                                       std::vector<int>(7)};
    for (int r = 0; r < w; ++r)
      for (const Segment& s : segments_of(unit, layout.first_tile(r), layout.tile_count(r))) {
        EXPECT_GT(s.length, 0);
        for (int64_t i = 0; i < s.length; ++i)
          ++seen[static_cast<size_t>(s.param)][static_cast<size_t>(s.flat_start + i)];
      }
    for (const auto& param : seen)
      for (int count : param) EXPECT_EQ(count, 1);
  }
}

TEST(SlotMap, EverySlotHasOneRankAndOneRound) {
  for (int64_t v = 1; v <= 17; ++v)
    for (int w = 1; w <= 9; ++w)
      for (int group = 1; group <= w; ++group) {
        if (w % group != 0) continue;
        const SlotMap map{v, w, group};
        std::vector<int> seen(static_cast<size_t>(v));
        for (int r = 0; r < w; ++r) {
          int64_t last = -1;
          for (int64_t slot : map.slots_of(r)) {
            EXPECT_GT(slot, last);
            last = slot;
            EXPECT_EQ(map.rank_of(slot), r) << v << " " << w;
            ++seen[static_cast<size_t>(slot)];
          }
        }
        for (int count : seen) EXPECT_EQ(count, 1);
        int64_t next = 0;
        for (int g = 0; g < map.groups(); ++g) {
          EXPECT_EQ(map.run_of_groups(g).first, next);
          for (int64_t round = 0; round < map.rounds(); ++round) {
            const SlotRun run = map.run_in_round(round, g * group, group);
            EXPECT_EQ(run.first, next);
            next = run.end();
          }
          EXPECT_EQ(map.run_of_groups(g).end(), next);
        }
        EXPECT_EQ(next, v);
      }
}

TEST(SlotMap, SubtreesAreTheFewestNodesOfTheTree) {
  using Runs = std::vector<SlotRun>;
  EXPECT_EQ(subtrees_of({0, 8}), (Runs{{0, 8}}));
  EXPECT_EQ(subtrees_of({1, 7}), (Runs{{1, 1}, {2, 2}, {4, 4}}));
  EXPECT_EQ(subtrees_of({3, 3}), (Runs{{3, 1}, {4, 2}}));
  EXPECT_EQ(subtrees_of({5, 0}), Runs{});
}

TEST(ShardLayout, EveryParameterBeginsAtATile) {
  const UnitSpec unit{"u", {{"a", {5000}, 0}, {"b", {3, 4096}, 0}, {"c", {7}, 0}}};
  EXPECT_EQ(param_offsets(unit), (std::vector<int64_t>{0, 2 * kTileElements, 5 * kTileElements}));
}

}  // namespace
}  // namespace lockstep::layout
