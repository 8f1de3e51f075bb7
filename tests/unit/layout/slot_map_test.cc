#include "layout/slot_map.h"

#include <gtest/gtest.h>

#include <set>

namespace lockstep::layout {
namespace {

TEST(StepSums, EachNumberHasAPlaceOfItsOwnInTheRowOfItsRank) {
  for (const int groups : {1, 2, 0})  // 0: of one rank each
    for (const int64_t slots : {1, 2, 5, 9, 16})
      for (const int ranks : {1, 2, 3, 5, 8, 17}) {
        if (groups > 0 && ranks % groups != 0) continue;
        const StepSums places{{slots, ranks, groups > 0 ? ranks / groups : 1}};
        std::set<int64_t> taken;
        const auto takes = [&](int rank, int64_t place) {
          EXPECT_GE(place, places.row(rank));
          EXPECT_LT(place, places.row(rank + 1));
          EXPECT_TRUE(taken.insert(place).second) << place;
        };
        for (int64_t slot = 0; slot < slots; ++slot) {
          EXPECT_EQ(places.map.slot(places.map.round_of(slot), places.map.rank_of(slot)), slot);
          takes(places.map.rank_of(slot), places.loss(slot));
          takes(places.map.rank_of(slot), places.valid_tokens(slot));
        }
        for (int rank = 0; rank < ranks; ++rank)
          for (int64_t i = 0; i < kRankFlags; ++i) takes(rank, places.flag(rank, i));
      }
}

TEST(StepSums, ARowDoesNotGrowWithRanksAndSlotsTogether) {
  for (const int ranks : {1, 64, 2048})
    for (const int group : {1, ranks})
      EXPECT_EQ((StepSums{{4 * ranks, ranks, group}}.width()), 2 * 4 + kRankFlags) << ranks;
}

}  // namespace
}  // namespace lockstep::layout
