// The order of a round: what is gathered, freed and exchanged around each stage.
#include "layout/round_plan.h"

#include <gmock/gmock.h>

#include <set>

#include "tests/unit/layout/small_model.h"

namespace lockstep::layout {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Every unit of the model alone; `joined`: all in one.
std::vector<UnitPlace> places_of(const ModelSpec& spec, bool joined = false) {
  std::vector<UnitPlace> places;
  for (const UnitSpec& unit : spec.units)
    places.push_back({joined ? 0 : static_cast<int>(places.size()), unit.frozen});
  return places;
}

RoundPlan training(const ModelSpec& spec, const Strategy& strategy = {}, bool joined = false) {
  return RoundPlan::training(stages_of(spec), places_of(spec, joined), strategy);
}

// Embedding 0, blocks 1 to 3, head 4.
TEST(RoundPlan, GathersOneUnitAheadAndBackwardRunsTheOtherWay) {
  const RoundPlan plan = training(small_model(3));
  ASSERT_EQ(plan.items.size(), 9u);
  EXPECT_THAT(plan.items[0].gather, ElementsAre(0, 1));
  EXPECT_THAT(plan.items[1].gather, ElementsAre(1, 2));
  EXPECT_THAT(plan.items[1].release, ElementsAre(1));
  EXPECT_THAT(plan.items[3].release, IsEmpty());  // backward of the last block is soon
  EXPECT_THAT(plan.items[4].gather, ElementsAre(4, 3));
  EXPECT_EQ(plan.items[4].pass, Pass::kLoss);
  EXPECT_EQ(plan.items[5].stage, 3u);
  EXPECT_THAT(plan.items[5].gather, ElementsAre(3, 2));
  EXPECT_THAT(plan.items[5].release, ElementsAre(3));
  EXPECT_EQ(plan.items[8].stage, 0u);
  EXPECT_THAT(plan.items[8].needed, IsEmpty());  // rows of the embedding need no weights
}

TEST(RoundPlan, TwoExchangesAreUnderWayAtMost) {
  const RoundPlan plan = training(small_model(3));
  EXPECT_THAT(plan.items[4].start, ElementsAre(4));
  EXPECT_THAT(plan.items[4].advance, IsEmpty());
  EXPECT_THAT(plan.items[5].advance, ElementsAre(4));
  EXPECT_THAT(plan.items[6].finish, ElementsAre(4));
  EXPECT_THAT(plan.items[6].advance, ElementsAre(3));
  EXPECT_THAT(plan.items[6].start, ElementsAre(2));
  EXPECT_THAT(plan.items[8].finish, ElementsAre(2));
  EXPECT_THAT(plan.items[8].start, ElementsAre(0));
  EXPECT_THAT(plan.travelling, ElementsAre(1, 0));
}

TEST(RoundPlan, PrefetchIsAsAsked) {
  Strategy strategy;
  strategy.forward_prefetch = false;
  strategy.backward_prefetch = BackwardPrefetch::kPost;
  const RoundPlan post = training(small_model(2), strategy);
  EXPECT_THAT(post.items[0].gather, ElementsAre(0));
  EXPECT_THAT(post.items[0].gather_after, IsEmpty());
  EXPECT_THAT(post.items[3].gather, ElementsAre(3));
  EXPECT_THAT(post.items[3].gather_after, ElementsAre(2));
  strategy.backward_prefetch = BackwardPrefetch::kNone;
  for (const RoundItem& item : training(small_model(2), strategy).items) {
    EXPECT_EQ(item.gather, item.needed);
    EXPECT_THAT(item.gather_after, IsEmpty());
  }
}

TEST(RoundPlan, WhatIsKeptGatheredIsNotReleased) {
  Strategy strategy;
  strategy.keep_gathered = true;
  for (const RoundItem& item : training(small_model(2), strategy).items)
    EXPECT_THAT(item.release, IsEmpty());
}

// The head works on the embedding, whose gradient is complete at the other end.
TEST(RoundPlan, ATiedUnitIsExchangedAfterTheEmbeddingsBackward) {
  const RoundPlan plan = training(small_model(1, /*tied=*/true));
  EXPECT_THAT(plan.items[2].needed, ElementsAre(2, 0));
  EXPECT_THAT(plan.items[2].start, ElementsAre(2));
  EXPECT_THAT(plan.items[4].start, ElementsAre(0));
}

TEST(RoundPlan, AJoinedUnitIsExchangedAfterItsLastPart) {
  const RoundPlan plan = training(small_model(2), {}, /*joined=*/true);
  for (size_t i = 0; i + 1 < plan.items.size(); ++i) EXPECT_THAT(plan.items[i].start, IsEmpty());
  EXPECT_THAT(plan.items.back().start, ElementsAre(0));
  EXPECT_THAT(plan.travelling, ElementsAre(0));
}

// Embedding 0, blocks 1 and 2, head 3, adapters 4 and 5: these alone are trained.
TEST(RoundPlan, OnlyAdaptersAreExchangedBesideFrozenUnits) {
  const RoundPlan plan = training(small_model(2, false, /*lora_rank=*/2));
  EXPECT_THAT(plan.items[1].needed, ElementsAre(1, 4));
  EXPECT_THAT(plan.items[3].start, IsEmpty());
  EXPECT_THAT(plan.items[4].start, ElementsAre(5));
  EXPECT_THAT(plan.items[5].start, ElementsAre(4));
  EXPECT_THAT(plan.items[6].start, IsEmpty());
}

TEST(RoundPlan, EvaluationEndsWithTheLossAndExchangesNothing) {
  const ModelSpec spec = small_model(2);
  const RoundPlan plan = RoundPlan::evaluation(stages_of(spec), places_of(spec), {});
  ASSERT_EQ(plan.items.size(), 4u);
  EXPECT_EQ(plan.items.back().pass, Pass::kLoss);
  EXPECT_THAT(plan.items.back().release, ElementsAre(3));
  for (const RoundItem& item : plan.items) EXPECT_THAT(item.start, IsEmpty());
}

// Played through: what an item needs is there, nothing is gathered twice at once, and every
// exchange that was started is finished by the loss of the next round.
TEST(RoundPlan, EveryPlanCanBeCarriedOut) {
  for (const bool tied : {false, true})
    for (const int64_t rank : {0, 2})
      for (const bool joined : {false, true})
        for (const bool keep : {false, true})
          for (const auto when :
               {BackwardPrefetch::kPre, BackwardPrefetch::kPost, BackwardPrefetch::kNone}) {
            if (joined && rank > 0) continue;  // frozen units are not joined with others
            Strategy strategy;
            strategy.keep_gathered = keep;
            strategy.backward_prefetch = when;
            const ModelSpec spec = small_model(4, tied, rank);
            const RoundPlan plan = training(spec, strategy, joined);
            std::set<int> there, travelling, exchanged;
            for (const RoundItem& item : plan.items) {
              there.insert(item.gather.begin(), item.gather.end());
              for (const int u : item.needed) EXPECT_TRUE(there.contains(u));
              there.insert(item.gather_after.begin(), item.gather_after.end());
              for (const int u : item.release) EXPECT_EQ(there.erase(u), 1u);
              for (const int u : item.finish) EXPECT_EQ(travelling.erase(u), 1u);
              const std::set<int> advanced(item.advance.begin(), item.advance.end());
              EXPECT_EQ(advanced, item.start.empty() ? std::set<int>() : travelling);
              for (const int u : item.start) {
                EXPECT_TRUE(travelling.insert(u).second);
                EXPECT_TRUE(exchanged.insert(u).second);
              }
              EXPECT_LE(travelling.size(), 2u);
            }
            EXPECT_EQ(std::set<int>(plan.travelling.begin(), plan.travelling.end()), travelling);
            EXPECT_TRUE(keep || there.empty());
            std::set<int> trained;
            for (const UnitPlace& place : places_of(spec, joined))
              if (!place.frozen) trained.insert(place.gathered);
            EXPECT_EQ(exchanged, trained);
          }
}

}  // namespace
}  // namespace lockstep::layout
