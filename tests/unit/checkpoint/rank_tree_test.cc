#include "checkpoint/ballot/rank_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/text.h"
#include "tests/support/memory_ballot.h"

namespace lockstep::checkpoint {
namespace {

using Shape = RankTree::Shape;
using std::chrono::milliseconds;
using testing::ElementsAre;

// The ranks that `rank` speaks for, in the order in which their words come.
void collect(const RankTree& tree, int rank, std::vector<int>& ranks) {
  ranks.push_back(rank);
  for (const int child : tree.children(rank)) {
    const size_t before = ranks.size();
    collect(tree, child, ranks);
    EXPECT_EQ(ranks.back(), tree.last(child));
    EXPECT_EQ(static_cast<int>(ranks.size() - before), tree.last(child) - child + 1);
    EXPECT_LT(tree.height(child), tree.height(rank));
  }
}

TEST(RankTree, EveryRankIsHeardOnceAndInOrder) {
  for (const Shape shape : {Shape::kDeep, Shape::kTwoLevels})
    for (int world_size = 1; world_size <= 600; world_size += world_size < 80 ? 1 : 37) {
      const RankTree tree{shape, world_size};
      std::vector<int> ranks;
      collect(tree, 0, ranks);
      ASSERT_EQ(static_cast<int>(ranks.size()), world_size);
      for (int r = 0; r < world_size; ++r) ASSERT_EQ(ranks[static_cast<size_t>(r)], r);
    }
}

TEST(RankTree, NobodyHearsManyRanksALevel) {
  const RankTree deep{Shape::kDeep, 16384};
  EXPECT_EQ(deep.children(0).size(), 4u * 7 + 3);
  EXPECT_EQ(deep.height(0), 5);
  for (const int rank : {8, 64, 512, 4096}) EXPECT_LE(deep.children(rank).size(), 28u) << rank;
  const RankTree two{Shape::kTwoLevels, 16384};
  EXPECT_EQ(two.children(0).size(), 127u + 127);
  EXPECT_EQ(two.children(4096).size(), 127u);
  EXPECT_EQ(two.height(0), 2);
  EXPECT_EQ((RankTree{Shape::kTwoLevels, 64}.children(0).size()), 7u + 7);
}

TEST(RankTree, SmallWorlds) {
  EXPECT_TRUE((RankTree{Shape::kDeep, 1}.children(0).empty()));
  EXPECT_EQ((RankTree{Shape::kDeep, 1}.height(0)), 0);
  EXPECT_THAT((RankTree{Shape::kDeep, 10}.children(0)), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT_THAT((RankTree{Shape::kDeep, 10}.children(8)), ElementsAre(9));
  EXPECT_THAT((RankTree{Shape::kDeep, 10}.children(9)), ElementsAre());
}

// Who waits in vain for one rank can still say so to a rank that waits for it.
TEST(RankTree, WhoHearsOthersIsWaitedForLonger) {
  const RankTree tree{Shape::kDeep, 100};
  EXPECT_EQ(tree.patience(9, milliseconds(800)), milliseconds(800));
  EXPECT_EQ(tree.patience(8, milliseconds(800)), milliseconds(900));
  EXPECT_EQ(tree.patience(64, milliseconds(800)), milliseconds(1000));
}

// How long `rank` may hear its children, all of them from one start.
milliseconds hears_for(const RankTree& tree, int rank, milliseconds deadline) {
  milliseconds most{0};
  for (const int child : tree.children(rank)) most = std::max(most, tree.patience(child, deadline));
  return most;
}

TEST(RankTree, NoWaitIsShorterThanWhatItWaitsFor) {
  constexpr milliseconds kDeadline{60000};
  for (const Shape shape : {Shape::kDeep, Shape::kTwoLevels})
    for (const int world_size : {2, 8, 9, 64, 65, 100, 513, 2048, 16384}) {
      const RankTree tree{shape, world_size};
      const milliseconds root = hears_for(tree, 0, kDeadline);
      const milliseconds outcome = tree.outcome_patience(kDeadline);
      EXPECT_GE(outcome, 2 * root) << "rank 0 began to hear as late as it may";
      const milliseconds whole = tree.whole_patience(kDeadline);
      EXPECT_GE(whole, root);
      for (int rank = 1; rank < world_size; rank += world_size < 600 ? 1 : 8) {
        const milliseconds hears = hears_for(tree, rank, kDeadline);
        ASSERT_GT(tree.patience(rank, kDeadline), hears) << rank << " of " << world_size;
        ASSERT_GE(whole, hears + outcome) << rank;
      }
    }
}

TEST(RankTree, WhoSaysNothingIsNamedWithThoseItSpeaksFor) {
  MemoryBallot ballot;
  const RankTree tree{Shape::kDeep, 11};
  for (const int rank : {1, 2, 3, 5, 6, 7})
    ASSERT_TRUE(ballot.tell(key_of("p", rank), text("of ", rank)).ok());
  const auto heard = hear_children(ballot, tree, 0, "p", milliseconds(0)).value();
  ASSERT_EQ(heard.size(), 8u);
  EXPECT_EQ(heard[1].words.value(), "of 2");
  EXPECT_EQ(heard[3].words.error().message, "rank 4");
  EXPECT_EQ(heard[7].words.error().message, "rank 8, which reports for ranks 8 to 10");
  EXPECT_EQ(ballot.size(), 0u) << "what was heard is forgotten";
}

}  // namespace
}  // namespace lockstep::checkpoint
