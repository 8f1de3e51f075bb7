#include "layout/slot_map.h"

#include <gtest/gtest.h>

#include <set>

namespace lockstep::layout {
namespace {

TEST(StepSums, EachNumberHasAPlaceOfItsOwnAmongThoseOfItsRank) {
  for (const int groups : {1, 2, 0})  // 0: of one rank each
    for (const int64_t slots : {1, 2, 5, 9, 16})
      for (const int ranks : {1, 2, 3, 5, 8, 17}) {
        if (groups > 0 && ranks % groups != 0) continue;
        const StepSums places{{slots, ranks, groups > 0 ? ranks / groups : 1}};
        std::set<int64_t> taken;
        const auto takes = [&](int rank, int64_t place, int64_t place_in_own) {
          EXPECT_EQ(place, rank * places.of_rank() + place_in_own);
          EXPECT_GE(place_in_own, 0);
          EXPECT_LT(place_in_own, places.words(1) - kRankFlags);
          EXPECT_TRUE(taken.insert(place).second) << place;
        };
        for (int64_t slot = 0; slot < slots; ++slot) {
          const int rank = places.map.rank_of(slot);
          EXPECT_EQ(places.map.slot(places.map.round_of(slot), rank), slot);
          takes(rank, places.loss(slot, 0), places.loss(slot, rank));
          takes(rank, places.valid_tokens(slot, 0), places.valid_tokens(slot, rank));
        }
      }
}

TEST(StepSums, WhatARankTellsDoesNotGrowWithRanksAndSlotsTogether) {
  for (const int ranks : {1, 64, 2048})
    for (const int group : {1, ranks})
      EXPECT_EQ((StepSums{{4 * ranks, ranks, group}}.words(1)), 2 * 4 + kRankFlags) << ranks;
}

TEST(SlotMap, EverySlotIsComputedOnceForAnyRanksAndGroups) {
  for (const int world_size : {1, 2, 3, 4, 6, 8, 12})
    for (int group = 1; group <= world_size; ++group)
      for (const int64_t slots : {1, 2, 5, 8, 13, 64})
        if (world_size % group == 0) SlotMap{slots, world_size, group}.check();
}

TEST(SlotMapDeathTest, GroupsThatDoNotDivideTheRanksEndTheProcess) {
  EXPECT_DEATH((SlotMap{8, 6, 4}.check()), "8 slots on 6 ranks in groups of 4");
  EXPECT_DEATH((SlotMap{8, 4, 2}.rank_of(8)), "slot 8 of 8");
  EXPECT_DEATH((SlotMap{8, 4, 2}.run_of_groups(1, 2)), "2 groups from 1 of 2");
}

}  // namespace
}  // namespace lockstep::layout
