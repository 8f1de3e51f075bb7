#include "core/audit/state_verdict.h"

#include <gmock/gmock.h>

#include "base/text.h"

namespace lockstep::core {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Reports = std::vector<StateReport>;

const std::vector<std::string> kUnits = {"embedding", "layers.0", "head"};

StateReport received_from(int source, uint64_t unit = 0) {
  return {StateFault::kReceived, unit, StateTensor::kGathered, source};
}

TEST(StateVerdict, RanksThatSayNothingAreSound) {
  for (size_t world_size = 1; world_size <= 5; ++world_size) {
    const Reports reports(world_size);
    const AuditVerdict verdict = judge_state(reports, 1);
    EXPECT_TRUE(verdict.same && verdict.decided());
    EXPECT_THAT(verdict.wrong, IsEmpty());
    EXPECT_EQ(state_difference(reports, 1, kUnits), "");
  }
}

TEST(StateVerdict, ChangedMemoryAndAnOutvotedCopyNameTheirRank) {
  Reports reports(4);
  reports[1] = {StateFault::kMemory, 1, StateTensor::kSecondMoment};
  reports[3] = {StateFault::kOutvoted, 2, StateTensor::kWeights};
  const AuditVerdict verdict = judge_state(reports, 1);
  EXPECT_FALSE(verdict.same);
  EXPECT_THAT(verdict.wrong, ElementsAre(1, 3));
  EXPECT_TRUE(verdict.decided());
  EXPECT_EQ(state_difference(reports, 1, kUnits),
            "memory of rank 1: second moments of layers.0 changed after they were written; copy of "
            "rank 3: fp32 weights of head differ from what most ranks hold");
}

TEST(StateVerdict, CopiesThatContradictEachOtherNameNobody) {
  Reports reports(2);
  for (StateReport& report : reports)
    report = {StateFault::kContradicted, 1, StateTensor::kFirstMoment};
  const AuditVerdict verdict = judge_state(reports, 1);
  EXPECT_FALSE(verdict.same);
  EXPECT_THAT(verdict.wrong, IsEmpty());
  EXPECT_THAT(verdict.undecided, ElementsAre(0, 1));
}

TEST(StateVerdict, OneReceiverIsNamedWhoeverSent) {
  for (int source = 0; source < 4; ++source) {
    Reports reports(4);
    reports[2] = received_from(source);
    EXPECT_THAT(judge_state(reports, 1).wrong, ElementsAre(2));
    EXPECT_THAT(state_difference(reports, 1, kUnits),
                HasSubstr(source == 2 ? "memory of rank 2" : "what rank 2 received from rank"));
  }
}

TEST(StateVerdict, AnOwnerOfWhomSeveralReceivedOtherBitsIsNamed) {
  Reports reports(4);
  reports[0] = received_from(3);
  reports[1] = received_from(3, 2);
  EXPECT_THAT(judge_state(reports, 1).wrong, ElementsAre(3));
  reports[3] = received_from(0);  // its wire errs in both directions
  EXPECT_THAT(judge_state(reports, 1).wrong, ElementsAre(3));
}

TEST(StateVerdict, TwoThatReceiveWronglyFromEachOtherAreUndecided) {
  Reports reports(2);
  reports[0] = received_from(1);
  reports[1] = received_from(0);
  EXPECT_THAT(judge_state(reports, 1).wrong, IsEmpty());
  EXPECT_THAT(judge_state(reports, 1).undecided, ElementsAre(0, 1));
}

StateReport exchanged_from(int source) { return {StateFault::kExchanged, 1, {}, source}; }

TEST(StateVerdict, WhoReceivedAGradientWronglyIsNamedOrWhoSentItToSeveral) {
  Reports reports(4);
  reports[3] = exchanged_from(0);
  for (const int group : {1, 2, 4}) {  // nobody passes a gradient on as he received it
    EXPECT_THAT(judge_state(reports, group).wrong, ElementsAre(3));
    EXPECT_EQ(state_difference(reports, group, kUnits),
              "network or receive buffer: what rank 3 received from rank 0 of the gradients of "
              "layers.0 differs from what that rank sent");
  }
  reports[1] = exchanged_from(0);
  EXPECT_THAT(judge_state(reports, 2).wrong, ElementsAre(0));
  reports[0] = {StateFault::kMemory, 0, StateTensor::kWeights};  // it is named already
  reports[1] = {};
  EXPECT_THAT(judge_state(reports, 2).wrong, ElementsAre(0));
  EXPECT_THAT(judge_state(reports, 2).undecided, ElementsAre());
  reports[0] = exchanged_from(3);
  EXPECT_THAT(judge_state(reports, 2).undecided, ElementsAre(0, 3));
}

TEST(StateVerdict, AGradientThatAnOwnPartChangedInIsItsRanksMemory) {
  Reports reports(2);
  reports[1] = exchanged_from(1);
  EXPECT_THAT(judge_state(reports, 1).wrong, ElementsAre(1));
  EXPECT_EQ(state_difference(reports, 1, kUnits),
            "memory of rank 1: gradients of layers.0 changed in the exchange buffer");
}

TEST(StateVerdict, AGradientOnTheWireExplainsNoSlot) {
  Reports reports(2);
  reports[1] = exchanged_from(0);
  EXPECT_FALSE(may_explain_slots(reports));
  reports[0] = received_from(1);
  EXPECT_TRUE(may_explain_slots(reports));
}

// The decision table of rules 3 to 5. Ranks in groups of G; each row: who receives wrongly, from
// which source, and who is named. `changed`: ranks whose memory is.
struct Taken {
  int rank, source;
};
AuditVerdict verdict_of(int world_size, int group, std::initializer_list<Taken> all,
                        std::initializer_list<int> changed = {}) {
  Reports reports(static_cast<size_t>(world_size));
  for (const Taken& each : all)
    reports[static_cast<size_t>(each.rank)] = received_from(each.source);
  for (const int rank : changed)
    reports[static_cast<size_t>(rank)] = {StateFault::kMemory, 0, StateTensor::kWeights};
  return judge_state(reports, group);
}

class TwoLegs : public testing::TestWithParam<int> {
 protected:
  // The `place`-th of the `group`-th group.
  int at(int group, int place) const { return group * g() + place; }
  int g() const { return GetParam(); }
  template <typename Matcher>
  void expect(int groups, std::initializer_list<Taken> all, const Matcher& wrong,
              std::initializer_list<int> changed = {}) const {
    const AuditVerdict verdict = verdict_of(groups * g(), g(), all, changed);
    EXPECT_FALSE(verdict.same);
    EXPECT_THAT(verdict.wrong, wrong);
    EXPECT_THAT(verdict.undecided, IsEmpty());
  }
};

TEST_P(TwoLegs, WhoPassesOnWronglyWhatItReceivedRightlyIsNamed) {
  for (int place = 0; place < g(); ++place)
    for (int sender = 0; sender < 2; ++sender) {
      const int source = at(sender, place), relay = at(1 - sender, place);
      Reports reports(static_cast<size_t>(2 * g()));
      for (int k = 0; k < g(); ++k)
        if (k != place) reports[static_cast<size_t>(at(1 - sender, k))] = received_from(source);
      const AuditVerdict verdict = judge_state(reports, g());
      EXPECT_THAT(verdict.wrong, ElementsAre(relay)) << "from " << source;
      EXPECT_TRUE(verdict.decided());
      EXPECT_THAT(state_difference(reports, g(), kUnits),
                  HasSubstr(text(" from rank ", source, " through rank ", relay, " of the ")));
    }
  // It spoils the parts of two sources, and each receiver says which it met first.
  expect(3, {{at(1, 1), at(0, 0)}, {at(1, 2), at(2, 0)}}, ElementsAre(at(1, 0)));
}

TEST_P(TwoLegs, WhatItsOwnGroupAloneTookFromASourceNamesTheSource) {
  expect(2, {{at(0, 1), at(0, 0)}, {at(0, 2), at(0, 0)}}, ElementsAre(at(0, 0)));
  // Its own part, and the one that it passes on.
  expect(2, {{at(0, 1), at(0, 0)}, {at(0, 2), at(1, 0)}}, ElementsAre(at(0, 0)));
}

TEST_P(TwoLegs, OneReceiverIsNamed) {
  expect(2, {{at(0, 1), at(0, 0)}}, ElementsAre(at(0, 1)));
  expect(2, {{at(1, 1), at(0, 0)}}, ElementsAre(at(1, 1)));
  expect(2, {{at(1, 0), at(0, 0)}}, ElementsAre(at(1, 0)));
  expect(2, {{at(0, 0), at(0, 0)}}, ElementsAre(at(0, 0)));
}

TEST_P(TwoLegs, ARelayThatReceivesWronglyExplainsItsGroup) {
  expect(2, {{at(1, 0), at(0, 0)}, {at(1, 1), at(0, 0)}, {at(1, 2), at(0, 0)}},
         ElementsAre(at(1, 0)));
  expect(2, {{at(1, 0), at(0, 0)}, {at(1, 1), at(0, 0)}}, ElementsAre(at(1, 0)));
}

TEST_P(TwoLegs, ASourceOfWhichAllGroupsComplainIsNamed) {
  expect(2, {{at(0, 1), at(0, 0)}, {at(1, 0), at(0, 0)}, {at(1, 1), at(0, 0)}},
         ElementsAre(at(0, 0)));
  expect(3, {{at(1, 0), at(0, 0)}, {at(2, 0), at(0, 0)}, {at(2, 1), at(0, 0)}},
         ElementsAre(at(0, 0)));
}

TEST_P(TwoLegs, ARankThatIsNamedExplainsWhatCameOverIt) {
  // The relay's memory.
  expect(2, {{at(1, 1), at(0, 0)}}, ElementsAre(at(1, 0)), {at(1, 0)});
  expect(2, {{at(1, 1), at(0, 0)}, {at(1, 2), at(0, 0)}}, ElementsAre(at(1, 0)), {at(1, 0)});
  // A relay that received something else wrongly.
  expect(3, {{at(1, 0), at(0, 1)}, {at(1, 2), at(0, 0)}}, ElementsAre(at(1, 0)));
  // A source that is: what one rank took through a sound relay is not held against that rank.
  expect(3, {{at(0, 1), at(0, 0)}, {at(0, 2), at(0, 0)}, {at(2, 1), at(0, 0)}},
         ElementsAre(at(0, 0)));
}

TEST_P(TwoLegs, WhatMayBeTheRelaysOrTheSourcesIsUndecided) {
  // The relay and its source complain of each other, and two ranks of what came through the relay.
  const AuditVerdict verdict =
      verdict_of(2 * g(), g(), {{at(1, 0), at(0, 0)}, {at(0, 0), at(1, 0)}, {at(1, 1), at(0, 0)}});
  EXPECT_THAT(verdict.wrong, IsEmpty());
  EXPECT_THAT(verdict.undecided, ElementsAre(at(0, 0), at(1, 0)));
  // The relay has another fault to report, of which it cannot be said whose it is.
  const AuditVerdict hidden = verdict_of(
      3 * g(), g(),
      {{at(1, 0), at(2, 0)}, {at(2, 0), at(1, 0)}, {at(1, 1), at(0, 0)}, {at(1, 2), at(0, 0)}});
  EXPECT_THAT(hidden.wrong, IsEmpty());
  EXPECT_THAT(hidden.undecided, ElementsAre(at(0, 0), at(1, 0), at(1, 1), at(1, 2), at(2, 0)));
  // One who is named beside it is still named.
  const AuditVerdict beside =
      verdict_of(3 * g(), g(), {{at(1, 0), at(2, 0)}, {at(0, 0), at(2, 0)}, {at(1, 1), at(0, 0)}});
  EXPECT_THAT(beside.wrong, ElementsAre(at(2, 0)));
  EXPECT_THAT(beside.undecided, ElementsAre(at(0, 0), at(1, 0), at(1, 1)));
}

INSTANTIATE_TEST_SUITE_P(Of, TwoLegs, testing::Values(3, 4));

TEST(StateVerdict, InGroupsOfTwoOneReceiverIsLeftBehindARelay) {
  EXPECT_THAT(verdict_of(6, 2, {{2, 1}, {3, 1}}).wrong, ElementsAre(3));
  EXPECT_THAT(verdict_of(6, 2, {{2, 1}, {3, 1}, {4, 1}, {5, 1}}).wrong, ElementsAre(1));
  EXPECT_THAT(verdict_of(6, 2, {{2, 1}}).wrong, ElementsAre(2)) << "the second leg";
}

// By place: what each rank holds.
std::vector<std::vector<AuditAnswer>> copies(const std::vector<std::vector<uint64_t>>& by_place) {
  std::vector<std::vector<AuditAnswer>> answers;
  for (const auto& place : by_place) {
    answers.emplace_back();
    for (size_t rank = 0; rank < place.size(); ++rank)
      answers.back().push_back({static_cast<int>(rank), place[rank]});
  }
  return answers;
}

TEST(CopiesReport, NamesTheTensorThatIsWrongAndNotOneThatFewHoldRightly) {
  // By place: rank 0 is one of two that hold a tensor rightly, among five; then it errs itself.
  const auto answers = copies({{1, 1, 2, 3, 4}, {5, 5, 5, 5, 5}, {6, 7, 7, 7, 7}});
  const StateReport report = report_of_copies(0, answers, 5);
  EXPECT_EQ(report.fault, StateFault::kOutvoted);
  EXPECT_EQ(report.tensor, StateTensor::kSecondMoment);
  EXPECT_EQ(report_of_copies(1, answers, 5).fault, StateFault::kNone);
  EXPECT_EQ(report_of_copies(2, answers, 5).tensor, StateTensor::kWeights);
}

TEST(CopiesReport, SaysWhetherSlotsAreComputedFromWhatIsContradicted) {
  const auto moments = copies({{1, 1}, {2, 3}, {4, 4}, {5, 5}});
  const auto weights = copies({{1, 1}, {2, 3}, {4, 4}, {5, 6}});
  for (const int rank : {0, 1}) {
    EXPECT_EQ(report_of_copies(rank, moments, 2).fault, StateFault::kContradictedAside);
    EXPECT_EQ(report_of_copies(rank, weights, 2).fault, StateFault::kContradicted);
    EXPECT_EQ(report_of_copies(rank, weights, 2).tensor, StateTensor::kFirstMoment);
  }
  Reports reports(2, {StateFault::kContradictedAside, 0, StateTensor::kFirstMoment});
  EXPECT_THAT(judge_state(reports, 1).undecided, ElementsAre(0, 1));
  EXPECT_FALSE(may_explain_slots(reports));
  reports[1].fault = StateFault::kContradicted;
  EXPECT_TRUE(may_explain_slots(reports));
}

TEST(StateVerdict, TheTextEndsWhereManyRanksSaySomething) {
  const Reports reports(9, received_from(8, 1));
  EXPECT_THAT(state_difference(reports, 1, kUnits), HasSubstr("; and 5 more ranks report faults"));
}

}  // namespace
}  // namespace lockstep::core
