#include "layout/slot_map.h"

#include <gtest/gtest.h>

#include <set>

namespace lockstep::layout {
namespace {

TEST(StepSums, EachNumberHasAPlaceOfItsOwnInTheRowOfItsRank) {
  for (const bool block : {false, true})
    for (const int64_t slots : {1, 2, 5, 9, 16})
      for (const int ranks : {1, 2, 3, 5, 8, 17}) {
        const StepSums places{{block, slots, ranks}};
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
  for (const bool block : {false, true})
    for (const int ranks : {1, 64, 2048})
      EXPECT_EQ((StepSums{{block, 4 * ranks, ranks}}.width()), 2 * 4 + kRankFlags) << ranks;
}

}  // namespace
}  // namespace lockstep::layout
