#include "core/comm/rank_agreement.h"

#include <gtest/gtest.h>

#include "base/text.h"

namespace lockstep::core {
namespace {

using Facts = std::vector<RankFacts>;

// Nodes of so many ranks, one behind the other.
Facts ranks_on(const std::vector<int>& counts) {
  Facts facts;
  for (size_t n = 0; n < counts.size(); ++n)
    for (int r = 0; r < counts[n]; ++r) {
      RankFacts one;
      one.host = text("n", n);
      one.ranks_of_node = counts[n];
      one.local_rank = r;
      facts.push_back(one);
    }
  return facts;
}

Facts in_turns(int nodes, int ranks) {
  Facts facts;
  for (int r = 0; r < nodes * ranks; ++r) {
    RankFacts one;
    one.host = text("n", r % nodes);
    one.ranks_of_node = ranks;
    one.local_rank = r / nodes;
    facts.push_back(one);
  }
  return facts;
}

Result<RankAgreement> as_told(const Facts& facts) {
  return parse_rank_agreement(encode(agree(facts)), static_cast<int>(facts.size()));
}

TEST(RankAgreement, AllHaveWhatRankZeroConcludes) {
  for (const Facts& facts : {ranks_on({1}), ranks_on({4}), ranks_on({8, 8, 8}), ranks_on({8, 4, 4}),
                             ranks_on({3, 2}), ranks_on({1, 1, 1, 2, 2}), in_turns(3, 2)}) {
    auto told = as_told(facts);
    ASSERT_TRUE(told.ok()) << told.error().message;
    const Nodes nodes = nodes_of(facts);
    EXPECT_EQ(told->transport, choose_transport(facts).value());
    EXPECT_EQ(told->nodes.sizes, nodes.sizes);
    EXPECT_EQ(told->nodes.of_rank, nodes.of_rank);
  }
}

TEST(RankAgreement, ItsErrorIsToldAsItIs) {
  Facts facts = ranks_on({2, 2});
  facts[2].kind = facts[2].build = "cuda";
  const auto mine = agree(facts), told = as_told(facts);
  ASSERT_FALSE(told.ok());
  EXPECT_EQ(told.error().code, Code::kConfig);
  EXPECT_EQ(told.error().message, mine.error().message);
  const auto lost = parse_all_facts({encode(facts[0]), "?"});
  const auto told_lost = parse_rank_agreement(encode(Result<RankAgreement>(lost.error())), 2);
  EXPECT_EQ(told_lost.error().code, Code::kPeerLost);
  EXPECT_EQ(told_lost.error().message, lost.error().message);
}

TEST(RankAgreement, ItIsAsLongForManyNodesAsForFew) {
  const auto words = [](int nodes) {
    return encode(agree(ranks_on(std::vector<int>(static_cast<size_t>(nodes), 8))));
  };
  EXPECT_LE(words(2048).size(), words(2).size() + 3);
}

TEST(RankAgreement, WordsThatAreNotRankZerosAreRefused) {
  const std::string good = encode(agree(ranks_on({2, 2})));
  EXPECT_TRUE(parse_rank_agreement(good, 4).ok());
  for (const std::string& words :
       {std::string(), std::string("{}"), good.substr(0, good.size() - 1), std::string("[1]")})
    EXPECT_EQ(parse_rank_agreement(words, 4).error().code, Code::kPeerLost) << words;
  for (const int size : {3, 5}) EXPECT_FALSE(parse_rank_agreement(good, size).ok()) << size;
}

TEST(RankAgreement, HostsAreByRank) {
  auto hosts = parse_hosts(encode_hosts(ranks_on({2, 1})));
  ASSERT_TRUE(hosts.ok());
  EXPECT_EQ(*hosts, (std::vector<std::string>{"n0", "n0", "n1"}));
  EXPECT_FALSE(parse_hosts("?").ok());
}

}  // namespace
}  // namespace lockstep::core
