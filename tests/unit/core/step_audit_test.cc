#include "core/audit/step_audit.h"

#include <gmock/gmock.h>

namespace lockstep::core {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const StepAudit kSound{{}, 1, ""};

StepAudit computing(std::vector<int> wrong) {
  return {{false, std::move(wrong), {}, {2}}, 2, "slot 2"};
}
StepAudit state(std::vector<int> wrong, std::vector<int> undecided, bool explains_slots) {
  return {{false, std::move(wrong), std::move(undecided), {}}, 0, "copies", true, explains_slots};
}

TEST(StepAudit, OfOneThatFoundSomethingIsThatOne) {
  EXPECT_TRUE(joined(kSound, {}).verdict.same);
  EXPECT_EQ(joined(kSound, {}).rounds, 1);
  const StepAudit computed = joined(computing({1}), {});
  EXPECT_FALSE(computed.of_state);
  EXPECT_THAT(computed.verdict.wrong, ElementsAre(1));
  const StepAudit held = joined(kSound, state({}, {1, 3}, false));
  EXPECT_TRUE(held.of_state);
  EXPECT_EQ(held.rounds, 1);
  EXPECT_THAT(held.verdict.undecided, ElementsAre(1, 3));
}

TEST(StepAudit, AWrongStateIsNamedAndNotWhatWasComputedFromIt) {
  for (const bool explains : {false, true}) {
    const StepAudit both = joined(computing({1}), state({3}, {}, explains));
    EXPECT_TRUE(both.of_state);
    EXPECT_THAT(both.verdict.wrong, ElementsAre(3));
    EXPECT_EQ(both.difference, "copies");
    EXPECT_EQ(both.rounds, 2);
  }
}

TEST(StepAudit, OfRanksThatContradictEachOtherTheOneThatComputesWronglyIsNamed) {
  const StepAudit both = joined(computing({1}), state({}, {1, 3}, false));
  EXPECT_FALSE(both.of_state || both.verdict.same);
  EXPECT_THAT(both.verdict.wrong, ElementsAre(1));
  EXPECT_THAT(both.verdict.undecided, IsEmpty());
  EXPECT_EQ(both.difference, "slot 2; copies");
  EXPECT_EQ(both.rounds, 2);
}

TEST(StepAudit, NotWhereSlotsAreComputedFromWhatIsContradictedNorWhereAnotherRankIsNamedToo) {
  for (const StepAudit& both : {joined(computing({1}), state({}, {1, 3}, true)),
                                joined(computing({1, 2}), state({}, {1, 3}, false)),
                                joined(computing({}), state({}, {1, 3}, false))}) {
    EXPECT_TRUE(both.of_state);
    EXPECT_THAT(both.verdict.wrong, IsEmpty());
    EXPECT_THAT(both.verdict.undecided, ElementsAre(1, 3));
  }
}

}  // namespace
}  // namespace lockstep::core
