// Which sums travel in a round, and where they are added; the cases are worked out by hand.
#include "layout/exchange_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>

namespace lockstep::layout {
namespace {

using Runs = std::vector<SlotRun>;

// W ranks in groups of G, V slots.
Strategy strategy(int64_t slots, int world_size, int group, bool block = false, bool bf16 = false) {
  Strategy s;
  s.map = {slots, world_size, block ? 1 : world_size};
  s.sizes = {group, group};
  s.bf16 = bf16;
  return s;
}

Runs of(const Leg& leg, size_t member) {
  const auto runs = leg.of(member);
  return {runs.begin(), runs.end()};
}

// Every strategy's groups, both slot maps, both types, more and fewer slots than ranks.
template <typename F>
void for_each_strategy(F&& f) {
  for (const auto& [w, s] :
       {std::pair(1, 1), {3, 1}, {3, 3}, {4, 1}, {4, 2}, {4, 4}, {6, 2}, {6, 3}, {9, 3}})
    for (const bool block : {false, true})
      for (const bool bf16 : {false, true})
        for (const int64_t slots : {1, 2, 5, 7, 16, 21}) {
          Strategy one = strategy(slots, w, s, block, bf16);
          f(one);
          one.map.group = s;  // group_block
          if (block && s > 1 && s < w) f(one);
        }
}

std::string name(const Strategy& s) {
  return "V=" + std::to_string(s.map.slots) + " W=" + std::to_string(s.map.world_size) +
         " G=" + std::to_string(s.sizes.group) + " slots by " + std::to_string(s.map.group) +
         (s.bf16 ? " bf16" : "");
}

TEST(ExchangePlan, FullShardShipsTheRoundsSlotsOnce) {
  const ExchangePlan plan = ExchangePlan::create(strategy(7, 3, 3), /*round=*/2, /*rank=*/1);
  EXPECT_EQ(plan.slot, std::nullopt);
  EXPECT_EQ(plan.in_group.runs, (Runs{{6, 1}}));  // of rank 0; the others are idle
  EXPECT_EQ(of(plan.in_group, 1), Runs{});
  EXPECT_EQ(plan.in_group.buffers(), 1u);
  EXPECT_FALSE(plan.two_legs() || plan.sums_slots || plan.sums_in_group);
}

TEST(ExchangePlan, DdpHasAFirstLegOfOneMember) {
  const ExchangePlan plan = ExchangePlan::create(strategy(4, 2, 1), /*round=*/1, /*rank=*/1);
  EXPECT_EQ(plan.in_group.runs, (Runs{{3, 1}}));
  EXPECT_EQ(plan.in_group.buffers(), 0u);  // it receives what it sends
  EXPECT_EQ(plan.among_groups.runs, (Runs{{2, 1}, {3, 1}}));
  EXPECT_EQ(&plan.last_leg(), &plan.among_groups);
}

// Two slots of a group are one node of the tree: a sum in fp32 for two pieces.
TEST(ExchangePlan, HybridAddsInTheGroupWhereThatIsFewerBytes) {
  const ExchangePlan fp32 = ExchangePlan::create(strategy(4, 4, 2), 0, 3);
  EXPECT_EQ(fp32.in_group.runs, (Runs{{2, 1}, {3, 1}}));
  EXPECT_TRUE(fp32.sums_in_group);
  EXPECT_EQ(fp32.among_groups.runs, (Runs{{0, 2}, {2, 2}}));
  EXPECT_TRUE(fp32.among_groups.fp32);
  // In bf16 the sum has as many bytes as the two.
  const ExchangePlan bf16 = ExchangePlan::create(strategy(4, 4, 2, false, true), 0, 3);
  EXPECT_FALSE(bf16.sums_in_group);
  EXPECT_EQ(bf16.among_groups.runs, (Runs{{0, 1}, {1, 1}, {2, 1}, {3, 1}}));
  EXPECT_FALSE(bf16.among_groups.fp32);
  // Four for one are worth it again.
  EXPECT_TRUE(ExchangePlan::create(strategy(8, 8, 4, false, true), 0, 0).sums_in_group);
}

TEST(ExchangePlan, ABlockTravelsOnceInFp32) {
  const Strategy s = strategy(14, 2, 2, /*block=*/true, /*bf16=*/true);
  for (int64_t round = 0; round < 6; ++round) {
    const ExchangePlan plan = ExchangePlan::create(s, round, 1);
    EXPECT_TRUE(plan.sums_slots);
    EXPECT_FALSE(plan.travels) << round;
    EXPECT_EQ(plan.slot, 7 + round);
  }
  const ExchangePlan last = ExchangePlan::create(s, 6, 1);
  EXPECT_TRUE(last.travels);
  EXPECT_EQ(of(last.in_group, 0), (Runs{{0, 4}, {4, 2}, {6, 1}}));
  EXPECT_EQ(of(last.in_group, 1), (Runs{{7, 1}, {8, 4}, {12, 2}}));
  EXPECT_EQ(last.in_group.buffers(), 3u);
  EXPECT_EQ(last.in_group.element_bytes(), 4);
}

TEST(ExchangePlan, NativeHasNoLegs) {
  Strategy s = strategy(5, 2, 2);
  s.reduction = Reduction::kNative;
  const ExchangePlan plan = ExchangePlan::create(s, 1, 0);
  EXPECT_TRUE(plan.native && plan.travels);
  EXPECT_EQ(plan.round, (SlotRun{2, 2}));
  EXPECT_EQ(plan.in_group.members() + plan.among_groups.members(), 0u);
}

// What its owner adds over a step is every slot once, in slot order, whoever the owner is.
TEST(ExchangePlan, EverySlotReachesEveryOwnerOnceAndInOrder) {
  for_each_strategy([](const Strategy& s) {
    for (int rank = 0; rank < s.map.world_size; ++rank) {
      int64_t next = 0;
      for (int64_t round = 0; round < s.map.rounds(); ++round) {
        const ExchangePlan plan = ExchangePlan::create(s, round, rank);
        if (!plan.travels || !plan.crosses) continue;
        for (const SlotRun& run : plan.last_leg().runs) {
          EXPECT_EQ(run.first, next) << name(s);
          next = run.end();
        }
      }
      EXPECT_EQ(next, s.map.slots) << name(s) << " rank " << rank;
    }
  });
}

// Else two of them would wait for each other with different counts.
TEST(ExchangePlan, MembersOfAGroupAgree) {
  for_each_strategy([](const Strategy& s) {
    for (int64_t round = 0; round < s.map.rounds(); ++round)
      for (int rank = 0; rank < s.map.world_size; ++rank) {
        const int place = rank % s.sizes.group;
        const ExchangePlan mine = ExchangePlan::create(s, round, rank),
                           first = ExchangePlan::create(s, round, rank - place),
                           other = ExchangePlan::create(s, round, place);
        EXPECT_EQ(mine.in_group.runs, first.in_group.runs) << name(s);
        EXPECT_EQ(mine.in_group.ends, first.in_group.ends) << name(s);
        EXPECT_EQ(mine.among_groups.runs, other.among_groups.runs) << name(s);
        EXPECT_EQ(mine.among_groups.ends, other.among_groups.ends) << name(s);
        EXPECT_EQ(mine.sums_in_group, other.sums_in_group) << name(s);
      }
  });
}

TEST(FoldOrder, SaysHowManyAdditionsAPushCompletes) {
  FoldOrder order(Reduction::kTree);
  for (const int64_t slot : {0, 1, 2, 3, 4, 5, 6, 7})
    EXPECT_EQ(order.push({slot, 1}), std::countr_zero(static_cast<uint64_t>(slot + 1))) << slot;
  EXPECT_EQ(order.open(), 1u);
  EXPECT_EQ(order.push({8, 4}), 0);
  EXPECT_EQ(order.push({12, 4}), 2);  // 8..15, 0..15
  EXPECT_EQ(order.end_round(), 0);
}

// As one round, in two, one by one; 8 to 15 as two halves.
TEST(FoldOrder, KnowsWhichSlotsWerePushed) {
  FoldOrder order(Reduction::kTree);
  EXPECT_EQ(order.pushed(), SlotRun());
  order.push({0, 4});
  order.push({4, 2});
  EXPECT_EQ(order.pushed(), (SlotRun{0, 6}));
  order.clear();
  EXPECT_EQ(order.pushed(), SlotRun());
}

TEST(FoldOrderDeathTest, SlotsOutOfOrderOrOffTheTreeEndTheProcess) {
  FoldOrder order(Reduction::kTree);
  order.push({0, 2});
  EXPECT_DEATH(order.push({3, 1}), "slot 3 is pushed after slots up to 2");
  EXPECT_DEATH(order.push({1, 1}), "slot 1 is pushed after slots up to 2");
  EXPECT_DEATH(order.push({2, 3}), "are no node of the tree");
  EXPECT_DEATH(order.push({2, 4}), "are no node of the tree");
}

TEST(FoldSteps, WhatArrivesTogetherIsAddedBySubtreesOfAtMostEight) {
  using Steps = std::vector<FoldStep>;
  const auto steps_of = [](FoldSteps& steps, int64_t first, int64_t end) {
    for (int64_t slot = first; slot < end; ++slot) steps.push({slot, 1});
    return steps.end_round();
  };
  FoldSteps one(Reduction::kTree);
  EXPECT_EQ(steps_of(one, 0, 16), (Steps{{8, 0}, {8, 1}}));
  EXPECT_EQ(steps_of(one, 16, 23), (Steps{{4, 0}, {2, 0}, {1, 0}}));
  EXPECT_EQ(one.open(), 4u);
  EXPECT_EQ(one.finish(), (FoldStep{0, 3}));
  FoldSteps odd(Reduction::kTree);
  EXPECT_EQ(steps_of(odd, 0, 3), (Steps{{2, 0}, {1, 0}}));
  EXPECT_EQ(steps_of(odd, 3, 6), (Steps{{1, 2}, {2, 0}}));
  EXPECT_EQ(steps_of(odd, 6, 8), (Steps{{2, 2}}));
  odd.push({8, 4});
  odd.push({12, 4});
  EXPECT_EQ(odd.end_round(), (Steps{{2, 1}}));
  EXPECT_EQ(odd.finish(), (FoldStep{0, 0}));
  EXPECT_EQ(FoldSteps(Reduction::kTree).finish(), (FoldStep{0, 0})) << "a frozen unit";
  FoldSteps uneven(Reduction::kTree);
  for (const SlotRun& run : {SlotRun{0, 4}, {4, 2}, {6, 1}, {7, 1}}) uneven.push(run);
  EXPECT_EQ(uneven.end_round(), (Steps{{1, 0}, {1, 0}, {2, 2}}));
  FoldSteps single(Reduction::kTree);
  for (int64_t slot = 0; slot < 8; ++slot)
    EXPECT_EQ(steps_of(single, slot, slot + 1),
              (Steps{{1, std::countr_zero(static_cast<uint64_t>(slot + 1))}}));
}

// The steps of any rounds leave open what the pushes alone do.
TEST(FoldSteps, AreTheOrderOfThePushes) {
  for (const Reduction reduction : {Reduction::kTree, Reduction::kUnordered})
    for (int64_t w = 1; w <= 20; ++w) {
      FoldSteps steps(reduction);
      FoldOrder order(reduction);
      int open = 0;
      for (int64_t first = 0; first < 70; first += w) {
        int parts = 0;
        for (int64_t slot = first; slot < first + w; ++slot) {
          steps.push({slot, 1});
          order.push({slot, 1});
        }
        order.end_round();
        for (const FoldStep& step : steps.end_round()) {
          parts += step.parts;
          EXPECT_LE(step.sums, open);
          open += step.opened();
        }
        EXPECT_EQ(parts, w);
        EXPECT_EQ(static_cast<size_t>(open), order.open()) << w << " " << first;
        EXPECT_EQ(steps.open(), order.open());
      }
    }
}

TEST(FoldOrder, WithoutATreeARoundIsASumOfItsOwn) {
  FoldOrder order(Reduction::kUnordered);
  EXPECT_EQ(order.push({0, 1}), 0);
  EXPECT_EQ(order.push({1, 1}), 1);
  EXPECT_EQ(order.end_round(), 0);
  EXPECT_EQ(order.push({2, 1}), 0);
  EXPECT_EQ(order.push({3, 1}), 1);
  EXPECT_EQ(order.end_round(), 1);
  EXPECT_EQ(order.open(), 1u);
}

// Four rounds of two nodes: the first leg of each adds into the node's sum, which crosses once.
TEST(ExchangePlan, AGroupsBlockCrossesInTheLastRoundInFp32) {
  Strategy s = strategy(14, 4, 2, false, /*bf16=*/true);
  s.map.group = 2;
  for (int64_t round = 0; round < 4; ++round) {
    const ExchangePlan plan = ExchangePlan::create(s, round, 3);
    EXPECT_EQ(plan.slot, round < 3 ? std::optional(8 + 2 * round) : std::nullopt);
    EXPECT_FALSE(plan.in_group.fp32);
    EXPECT_TRUE(plan.travels && plan.relays() && plan.sums_in_group);
    EXPECT_EQ(plan.crosses, round == 3);
    EXPECT_EQ(plan.among_groups.members(), round == 3 ? 2u : 0u);
  }
  const ExchangePlan last = ExchangePlan::create(s, 3, 3);
  EXPECT_EQ(last.in_group.runs, (Runs{{13, 1}}));
  EXPECT_EQ(of(last.among_groups, 0), (Runs{{0, 4}, {4, 2}, {6, 1}}));
  EXPECT_EQ(of(last.among_groups, 1), (Runs{{7, 1}, {8, 4}, {12, 2}}));
  EXPECT_TRUE(last.among_groups.fp32);
}

TEST(GroupSizes, FitWhatIsLeftOfTheNodes) {
  using enum ShardingStrategy;
  Config config;
  const auto sizes = [&](ShardingStrategy strategy, int w, int node, int64_t degree = 0) {
    config.parallelism.strategy = strategy;
    config.parallelism.data_parallel_shard_degree = degree;
    return group_sizes(config, w, node);
  };
  EXPECT_EQ(sizes(kSingle, 1, 1), (GroupSizes{1, 1}));
  EXPECT_EQ(sizes(kDdp, 8, 4), (GroupSizes{1, 4}));
  EXPECT_EQ(sizes(kDdp, 8, 0), (GroupSizes{1, 1}));
  EXPECT_EQ(sizes(kDdp, 8, 8), (GroupSizes{1, 1}));
  EXPECT_EQ(sizes(kDdp, 8, 1), (GroupSizes{1, 1}));
  EXPECT_EQ(sizes(kFullShard, 8, 4), (GroupSizes{8, 4}));
  EXPECT_EQ(sizes(kShardGradOp, 8, 4), (GroupSizes{8, 4}));
  EXPECT_EQ(sizes(kFullShard, 8, 8), (GroupSizes{8, 8}));
  EXPECT_EQ(sizes(kFullShard, 6, 4), (GroupSizes{6, 2}));  // of one node, and half of another
  EXPECT_EQ(sizes(kFullShard, 5, 3), (GroupSizes{5, 5}));  // 3 + 2
  config.parallelism.data_parallel_shard_degree = 0;
  config.parallelism.strategy = kFullShard;
  EXPECT_EQ(group_sizes(config, 16, NodeRanks(8, 4)), (GroupSizes{16, 4}));  // 8 + 4 + 4
  EXPECT_EQ(group_sizes(config, 8, NodeRanks(4, 1)), (GroupSizes{8, 8}));    // out of order
  config.parallelism.strategy = kHybrid;
  EXPECT_EQ(group_sizes(config, 16, NodeRanks(8, 4)), (GroupSizes{8, 8}));
  EXPECT_EQ(sizes(kHybrid, 8, 4), (GroupSizes{4, 4}));
  EXPECT_EQ(sizes(kHybrid, 8, 0), (GroupSizes{8, 8}));
  EXPECT_EQ(sizes(kHybrid, 6, 3), (GroupSizes{3, 3}));
  EXPECT_EQ(sizes(kHybrid, 8, 4, 2), (GroupSizes{2, 2}));
  EXPECT_EQ(sizes(kHybrid, 6, 4), (GroupSizes{6, 6}));
  EXPECT_EQ(sizes(kHybrid, 9, 2), (GroupSizes{3, 3}));
  EXPECT_EQ(sizes(kHybrid, 5, 2), (GroupSizes{5, 5}));
  EXPECT_EQ(sizes(kHybrid, 2, 4), (GroupSizes{2, 2}));
}

TEST(SlotGroup, IsTheNodesWhereTheyTakeSlotsTogether) {
  using enum ShardingStrategy;
  Config config;
  const auto group = [&](ShardingStrategy strategy, SlotMapKind map, int w, int node) {
    config.parallelism.strategy = strategy;
    config.parallelism.slot_map = map;
    return slot_group(config, w, node);
  };
  EXPECT_EQ(group(kFullShard, SlotMapKind::kCyclic, 8, 4), 8);
  EXPECT_EQ(group(kFullShard, SlotMapKind::kBlock, 8, 4), 1);
  EXPECT_EQ(group(kFullShard, SlotMapKind::kGroupBlock, 8, 4), 4);
  EXPECT_EQ(group(kFullShard, SlotMapKind::kGroupBlock, 8, 0), 8);
  EXPECT_EQ(group(kHybrid, SlotMapKind::kGroupBlock, 9, 2), 3);
  // Who holds a share of the state has no room for sums of whole units.
  for (const auto& [w, node] : {std::pair(5, 3), {4, 1}}) {
    EXPECT_EQ(group(kFullShard, SlotMapKind::kGroupBlock, w, node), w);
    EXPECT_EQ(group(kShardGradOp, SlotMapKind::kGroupBlock, w, node), w);
    EXPECT_EQ(group(kDdp, SlotMapKind::kGroupBlock, w, node), 1);
  }
  EXPECT_EQ(group(kFullShard, SlotMapKind::kGroupBlock, 1, 1), 1);
}

TEST(Strategy, KeepsAJointPartWhereItIsAskedToAndNodesMakeGroups) {
  using enum ShardingStrategy;
  Config config;
  config.parallelism.reshard_after_forward = ReshardAfterForward::kNode;
  const auto keeps = [&](ShardingStrategy strategy, int w, const NodeRanks& nodes) {
    config.parallelism.strategy = strategy;
    const bool kept = Strategy::create(config, w, nodes).keep_joint_part;
    if (strategy == kFullShard) {
      EXPECT_EQ(reshard_is_idle(config, w, nodes).empty(), kept) << w;
    }
    return kept;
  };
  EXPECT_TRUE(keeps(kFullShard, 8, 4));
  EXPECT_TRUE(keeps(kFullShard, 6, 4));   // groups of 2
  EXPECT_FALSE(keeps(kFullShard, 8, 0));  // one node
  EXPECT_FALSE(keeps(kFullShard, 8, 8));
  EXPECT_FALSE(keeps(kFullShard, 5, 3));  // no groups
  EXPECT_FALSE(keeps(kFullShard, 1, 0));
  EXPECT_FALSE(keeps(kDdp, 8, 4));
  EXPECT_FALSE(keeps(kHybrid, 8, 4));
  config.parallelism.strategy = kFullShard;
  EXPECT_THAT(reshard_is_idle(config, 8, 8), testing::HasSubstr("all ranks are on one node"));
  EXPECT_THAT(reshard_is_idle(config, 5, 3), testing::HasSubstr("make no group"));
  config.parallelism.reshard_after_forward = ReshardAfterForward::kWorld;
  EXPECT_FALSE(Strategy::create(config, 8, 4).keep_joint_part);
  EXPECT_EQ(reshard_is_idle(config, 8, 8), "");
}

TEST(Strategy, TensorsOfAShard) {
  Strategy s;
  const auto kept = [&](bool frozen, bool elsewhere) {
    const ShardTensors t = s.tensors_of(frozen, elsewhere);
    return 100 * t.master + 10 * t.optimizer + t.copy;
  };
  EXPECT_EQ(kept(false, false), 110);
  EXPECT_EQ(kept(true, false), 100);  // its master is what is gathered
  EXPECT_EQ(kept(false, true), 111);
  s.bf16 = true;
  EXPECT_EQ(kept(false, false), 111);
  EXPECT_EQ(kept(true, false), 1);
  s.forward_only = true;
  EXPECT_EQ(kept(false, false), 101);
}

}  // namespace
}  // namespace lockstep::layout
