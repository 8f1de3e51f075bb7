#include "launcher/control/quorum.h"

#include <gtest/gtest.h>

namespace lockstep::launcher::control {
namespace {

constexpr NodeId kVoter = 1, kLost = 9;
const std::vector<NodeId> kFour{1, 2, 3, 4};

Quorum first() { return {kVoter, {}, Rule::kNone}; }
Quorum inherited() {
  return {kVoter, {.generation = 3, .members = kFour, .lost = kLost}, Rule::kNone};
}

// As the rendezvous lets it, with the promises of all.
void commit(Quorum& quorum, int64_t generation, const std::vector<NodeId>& members) {
  const size_t all = quorum.members().size();
  quorum.allow(generation);
  quorum.commit(generation, members, {.all = all, .exclusive = all});
}

TEST(Quorum, HalfOfTheMembersAreEnough) {
  const Quorum quorum = inherited();
  EXPECT_FALSE(quorum.reached(1));
  EXPECT_TRUE(quorum.reached(2));
  EXPECT_TRUE(first().reached(0));
}

TEST(Quorum, TheProposalNamesWhatItFollows) {
  const Quorum quorum = inherited();
  const Succession half = quorum.proposal(4, 2), most = quorum.proposal(4, 3);
  EXPECT_EQ(half.leader, kVoter);
  EXPECT_EQ(half.generation, 4);
  EXPECT_EQ(half.lost, kLost);
  EXPECT_EQ(half.base, 3);
  EXPECT_TRUE(half.tie);
  EXPECT_FALSE(most.tie);
}

TEST(Quorum, WhoHasCommittedNamesItself) {
  Quorum quorum = inherited();
  EXPECT_FALSE(quorum.has_committed());
  commit(quorum, 4, {1, 2, 3});
  EXPECT_TRUE(quorum.has_committed());
  EXPECT_EQ(quorum.proposal(5, 3).lost, kVoter);
  EXPECT_EQ(quorum.proposal(5, 3).base, 4);
}

TEST(Quorum, AStandbyAlwaysAsks) { EXPECT_FALSE(inherited().need_not_ask(4)); }

TEST(Quorum, NeedNotAskOnceMostHaveRunTheBaseAndStayed) {
  Quorum quorum = first();
  commit(quorum, 0, kFour);
  EXPECT_TRUE(quorum.need_not_ask(3));  // nothing was before it
  EXPECT_FALSE(quorum.need_not_ask(2));
  commit(quorum, 1, kFour);
  EXPECT_FALSE(quorum.need_not_ask(4));
  quorum.note_ran(1, 1);
  quorum.note_ran(2, 0);  // of another generation
  quorum.note_ran(3, 1);
  EXPECT_FALSE(quorum.need_not_ask(4));  // two of four
  quorum.note_ran(4, 1);
  EXPECT_TRUE(quorum.need_not_ask(3));
}

TEST(Quorum, AStandbyStopsNothingBeforeItIsTheOneThatWaits) {
  Quorum quorum = inherited();
  EXPECT_FALSE(quorum.may_stop(4));
  quorum.grant_claim();  // an answer to nothing
  EXPECT_FALSE(quorum.may_stop(4));
  EXPECT_TRUE(quorum.must_claim(4));
  EXPECT_FALSE(quorum.must_claim(4));
  quorum.grant_claim();
  EXPECT_TRUE(quorum.may_stop(2));
  EXPECT_FALSE(quorum.may_stop(1));
  EXPECT_TRUE(quorum.ends_job(2));
  EXPECT_FALSE(quorum.ends_job(1));
}

TEST(Quorum, WhoHasCommittedClaimsOnlyWhenItCanBeOneOfTwoHalves) {
  Quorum quorum = first();
  EXPECT_TRUE(quorum.may_stop(0));
  commit(quorum, 0, kFour);
  EXPECT_FALSE(quorum.must_claim(3));
  EXPECT_TRUE(quorum.must_claim(2));
  EXPECT_TRUE(quorum.may_stop(1));
  EXPECT_FALSE(quorum.ends_job(1));
}

}  // namespace
}  // namespace lockstep::launcher::control
