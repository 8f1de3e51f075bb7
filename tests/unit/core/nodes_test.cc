#include "core/comm/nodes.h"

#include <gtest/gtest.h>

#include "base/text.h"

namespace lockstep::core {
namespace {

using Facts = std::vector<RankFacts>;

RankFacts rank_on(const std::string& host, int ranks_of_node, int local_rank) {
  RankFacts f;
  f.host = host;
  f.ranks_of_node = ranks_of_node;
  f.local_rank = local_rank;
  return f;
}

// Nodes of so many ranks, one behind the other; all `on` one host, where it is said.
Facts in_order(const std::vector<int>& counts, const std::string& on = "") {
  Facts facts;
  for (size_t n = 0; n < counts.size(); ++n)
    for (int r = 0; r < counts[n]; ++r)
      facts.push_back(rank_on(on.empty() ? text("n", n) : on, counts[n], r));
  return facts;
}

// `nodes` of `ranks`; neighbours are `lot` after `lot` on one node.
Facts in_turns(int nodes, int ranks, int lot) {
  Facts facts;
  for (int first = 0; first < ranks; first += lot)
    for (int n = 0; n < nodes; ++n)
      for (int r = first; r < first + lot; ++r) facts.push_back(rank_on(text("n", n), ranks, r));
  return facts;
}

int together(const std::vector<int>& counts) { return nodes_of(in_order(counts)).sizes.together; }

TEST(Nodes, GroupsLieInsideThem) {
  EXPECT_EQ(together({4, 4}), 4);
  EXPECT_EQ(together({4, 2}), 2);
  EXPECT_EQ(together({8, 4, 4}), 4);  // not 8, which divides 16: 8 to 15 are on two nodes
  EXPECT_EQ(together({4, 3, 1}), 1);
  EXPECT_EQ(together({3, 2}), 1);
  EXPECT_EQ(together({1, 1, 1}), 1);
  EXPECT_EQ(together({4}), 4);
}

TEST(Nodes, AreNumberedAsTheirRanksFollow) {
  const Nodes nodes = nodes_of(in_order({2, 1, 3}));
  EXPECT_EQ(nodes.of_rank, (std::vector<int>{0, 0, 1, 2, 2, 2}));
  EXPECT_EQ(nodes.sizes.most, 3);
  EXPECT_EQ(nodes_of(in_order({4})).of_rank, std::vector<int>(4, 0));
}

// Several agents on one machine, or LOCAL_WORLD_SIZE below the ranks of it.
TEST(Nodes, MayShareAHost) {
  const Nodes nodes = nodes_of(in_order({2, 2, 2}, "here"));
  EXPECT_EQ(nodes.of_rank, (std::vector<int>{0, 0, 1, 1, 2, 2}));
  EXPECT_EQ(nodes.sizes, layout::NodeRanks(2));
  EXPECT_EQ(nodes.advice, "");
  EXPECT_EQ(nodes_of(in_order({1, 1}, "here")).of_rank, (std::vector<int>{0, 1}));
}

TEST(Nodes, WhoseRanksAreNotNeighboursMakeNoGroups) {
  const Nodes cyclic = nodes_of(in_turns(2, 4, 1));
  EXPECT_EQ(cyclic.of_rank, (std::vector<int>{0, 1, 0, 1, 0, 1, 0, 1}));
  EXPECT_EQ(cyclic.sizes, layout::NodeRanks(4, 1));
  for (const char* word : {"rank 2 is on n0, like earlier ranks, but ranks of other nodes",
                           "crosses", "srun --distribution=block", "mpirun --map-by slot"})
    EXPECT_NE(cyclic.advice.find(word), std::string::npos) << cyclic.advice;
  const Nodes plane = nodes_of(in_turns(2, 4, 2));
  EXPECT_EQ(plane.of_rank, (std::vector<int>{0, 0, 1, 1, 0, 0, 1, 1}));
  EXPECT_EQ(plane.sizes, layout::NodeRanks(4, 1));
  EXPECT_NE(plane.advice, "");
  EXPECT_EQ(nodes_of(in_turns(4, 1, 1)).advice, "");
}

TEST(Nodes, OfNumbersThatHaveNoDivisorAreNamed) {
  EXPECT_EQ(nodes_of(in_order({3, 2})).advice.find("nodes have 2 to 3 ranks"), 0u);
  for (const auto& counts : {std::vector{4, 2}, {8, 4, 4}, {1, 1}, {3}})
    EXPECT_EQ(nodes_of(in_order(counts)).advice, "");
}

// Workers keep their places when a node goes on with fewer of them.
TEST(Nodes, HaveGapsAmongTheirPlaces) {
  for (const char* second : {"n1", "n0"}) {
    const Facts facts{rank_on("n0", 2, 1), rank_on("n0", 2, 3), rank_on(second, 2, 0),
                      rank_on(second, 2, 2)};
    EXPECT_EQ(nodes_of(facts).of_rank, (std::vector<int>{0, 0, 1, 1})) << second;
    EXPECT_EQ(nodes_of(facts).sizes, layout::NodeRanks(2)) << second;
    EXPECT_EQ(nodes_of(facts).advice, "") << second;
  }
  // Full nodes of one host, whose places go on.
  const Facts facts{rank_on("n0", 2, 0), rank_on("n0", 2, 1), rank_on("n0", 2, 2),
                    rank_on("n0", 2, 3)};
  EXPECT_EQ(nodes_of(facts).of_rank, (std::vector<int>{0, 0, 1, 1}));
}

// LOCAL_WORLD_SIZE is not set: a rank has heard of those before it, or of nobody.
TEST(Nodes, AreFoundWithoutTheNumberOfTheirRanks) {
  Facts facts = in_order({2, 2});
  for (RankFacts& f : facts) f.ranks_of_node = f.local_rank + 1;
  EXPECT_EQ(nodes_of(facts).of_rank, (std::vector<int>{0, 0, 1, 1}));
  EXPECT_EQ(nodes_of(facts).sizes, layout::NodeRanks(2));
  for (RankFacts& f : facts) f.ranks_of_node = f.local_rank = 0;
  EXPECT_EQ(nodes_of(facts).of_rank, std::vector<int>(4, 0));
  EXPECT_EQ(nodes_of(facts).sizes.together, 4);
}

}  // namespace
}  // namespace lockstep::core
