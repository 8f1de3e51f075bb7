#include "core/audit/verdict.h"

#include <gmock/gmock.h>

namespace lockstep::core {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Answers = std::vector<std::vector<AuditAnswer>>;

TEST(AuditShifts, TakeEverySlotToAnotherRankAndAnotherNodeFirst) {
  EXPECT_THAT(audit_shifts(1, 0), ElementsAre(0, 0, 0));
  EXPECT_THAT(audit_shifts(2, 0), ElementsAre(1, 0, 1));
  EXPECT_THAT(audit_shifts(3, 0), ElementsAre(1, 2, 0));
  EXPECT_THAT(audit_shifts(8, 0), ElementsAre(1, 2, 3));
  EXPECT_THAT(audit_shifts(4, 2), ElementsAre(2, 1, 3));
  EXPECT_THAT(audit_shifts(6, 2), ElementsAre(2, 3, 4));
}

TEST(AuditShifts, TheFirstOneLeavesTheNodeWhereverThereAreTwo) {
  for (int world_size = 2; world_size <= 24; ++world_size)
    for (int of_node = 1; 2 * of_node <= world_size; ++of_node) {
      const int shift = audit_shifts(world_size, of_node).front();
      for (int rank = 0; rank < world_size; ++rank)
        EXPECT_NE(rank / of_node, (rank + shift) % world_size / of_node)
            << world_size << " ranks, " << of_node << " a node";
    }
}

// The answers of ranks for their own slots and for those of the shifts; `digest(rank, slot, nth)`:
// what a rank gives, the nth time that it computes anything.
template <typename Digest>
AuditVerdict verdict_after(int world_size, int rounds, Digest digest) {
  const std::vector<int> shifts = audit_shifts(world_size, 0);
  Answers answers(static_cast<size_t>(world_size));
  for (int rank = 0; rank < world_size; ++rank)
    answers[static_cast<size_t>(rank)].push_back({rank, digest(rank, rank, 0)});
  for (int round = 0; round < rounds; ++round)
    for (int rank = 0; rank < world_size; ++rank) {
      const int slot = (rank + world_size - shifts[static_cast<size_t>(round)]) % world_size;
      answers[static_cast<size_t>(slot)].push_back({rank, digest(rank, slot, round + 1)});
    }
  return judge(answers, world_size);
}

uint64_t right_for(int slot) { return 100 + static_cast<uint64_t>(slot); }

TEST(AuditVerdict, EqualAnswersAreSound) {
  for (int world_size = 1; world_size <= 5; ++world_size) {
    const auto verdict =
        verdict_after(world_size, 1, [](int, int slot, int) { return right_for(slot); });
    EXPECT_TRUE(verdict.same && verdict.decided());
    EXPECT_THAT(verdict.wrong, IsEmpty());
  }
}

TEST(AuditVerdict, ARankThatAlwaysErrsIsNamedByTheSecondRound) {
  for (int world_size = 3; world_size <= 9; ++world_size)
    for (int bad = 0; bad < world_size; ++bad) {
      const auto erring = [&](int rank, int slot, int nth) {
        return right_for(slot) + (rank == bad ? 1000 + static_cast<uint64_t>(nth) : 0);
      };
      const AuditVerdict first = verdict_after(world_size, 1, erring);
      EXPECT_FALSE(first.same);
      EXPECT_EQ(first.slots.size(), 2u);
      EXPECT_FALSE(first.decided());
      EXPECT_THAT(first.wrong, IsEmpty()) << "one word stands against another";
      const AuditVerdict second = verdict_after(world_size, 2, erring);
      EXPECT_THAT(second.wrong, ElementsAre(bad)) << world_size;
      EXPECT_TRUE(second.decided());
    }
}

TEST(AuditVerdict, ARankThatErrsOnceIsNamedAlsoBesideOnlyOneOther) {
  for (int world_size = 2; world_size <= 5; ++world_size)
    for (int bad = 0; bad < world_size; ++bad)
      for (int when = 0; when <= 1; ++when) {
        const AuditVerdict verdict =
            verdict_after(world_size, kAuditRounds, [&](int rank, int slot, int nth) {
              return right_for(slot) + (rank == bad && nth == when ? 1000 : 0);
            });
        EXPECT_THAT(verdict.wrong, ElementsAre(bad)) << world_size << ", " << when;
      }
}

TEST(AuditVerdict, OfTwoRanksThatContradictEachOtherForGoodNobodyIsNamed) {
  const AuditVerdict verdict = verdict_after(2, kAuditRounds, [](int rank, int slot, int) {
    return right_for(slot) + (rank == 1 ? 1000 : 0);
  });
  EXPECT_FALSE(verdict.same);
  EXPECT_THAT(verdict.wrong, IsEmpty());
  EXPECT_THAT(verdict.undecided, ElementsAre(0, 1));
}

TEST(AuditVerdict, OneRankThatContradictsItselfIsNamed) {
  const auto verdict = verdict_after(
      1, 1, [](int, int slot, int nth) { return right_for(slot) + static_cast<uint64_t>(nth); });
  EXPECT_THAT(verdict.wrong, ElementsAre(0));
}

TEST(AuditVerdict, TwoRanksThatErrAreBothNamedWhereTheOthersOutvoteThem) {
  const AuditVerdict verdict = verdict_after(8, kAuditRounds, [](int rank, int slot, int) {
    return right_for(slot) + (rank == 1 || rank == 5 ? static_cast<uint64_t>(rank) * 1000 : 0);
  });
  EXPECT_THAT(verdict.wrong, ElementsAre(1, 5));
  EXPECT_TRUE(verdict.decided());
}

TEST(AuditVerdict, SaysWhichSlotsSpeakAgainstARank) {
  // 2 : 1 : 1 : 1, 1 : 4, and two pairs.
  const Answers answers = {{{0, 1}, {1, 1}, {2, 2}, {3, 3}, {4, 4}},
                           {{0, 1}, {1, 2}, {2, 2}, {3, 2}, {4, 2}},
                           {{5, 1}, {6, 1}, {7, 2}, {8, 2}},
                           {{1, 1}, {5, 2}}};
  const AuditVerdict verdict = judge(answers, 9);
  EXPECT_THAT(verdict.wrong, ElementsAre(0, 2, 3, 4));
  EXPECT_THAT(verdict.undecided, ElementsAre(1, 5, 6, 7, 8));
  EXPECT_THAT(slots_against(0, answers, verdict), ElementsAre(1));
  EXPECT_THAT(slots_against(3, answers, verdict), ElementsAre(0));
  EXPECT_THAT(slots_against(1, answers, verdict), ElementsAre(3));
  EXPECT_THAT(slots_against(5, answers, verdict), ElementsAre(2, 3));
}

TEST(AuditVerdict, SlotsOfIdleRanksHaveOneAnswer) {
  Answers answers{{{0, 7}, {1, 7}}, {{1, 8}}};
  EXPECT_TRUE(judge(answers, 3).same);
}

}  // namespace
}  // namespace lockstep::core
