#include "core/audit/state_verdict.h"

#include <gmock/gmock.h>

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
    EXPECT_EQ(state_difference(reports, kUnits), "");
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
  EXPECT_EQ(state_difference(reports, kUnits),
            "memory of rank 1: second moments of layers.0 changed after they were written; copy of "
            "rank 3: fp32 weights of head are not what more other ranks hold");
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
    EXPECT_THAT(state_difference(reports, kUnits),
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

TEST(StateVerdict, WhoPassesOnWhatItReceivedWronglyExplainsTheOthersOfItsGroup) {
  Reports reports(6);
  reports[2] = reports[3] = received_from(1);  // groups of 2: rank 3 gets it, rank 2 from rank 3
  EXPECT_THAT(judge_state(reports, 2).wrong, ElementsAre(3));
  reports[4] = reports[5] = received_from(1);
  EXPECT_THAT(judge_state(reports, 2).wrong, ElementsAre(1)) << "two groups, one sender";
  reports = Reports(6);
  reports[2] = received_from(1);
  EXPECT_THAT(judge_state(reports, 2).wrong, ElementsAre(2)) << "the second leg";
}

TEST(StateVerdict, TheTextEndsWhereManyRanksSaySomething) {
  const Reports reports(9, received_from(8, 1));
  EXPECT_THAT(state_difference(reports, kUnits), HasSubstr("; and of 5 more ranks"));
}

}  // namespace
}  // namespace lockstep::core
