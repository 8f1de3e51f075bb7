#include "core/sharding/rank_flags.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace lockstep::core {
namespace {

// What each rank makes of what all say.
RankFlags any_of(const std::vector<RankFlags>& said) {
  RankFlags any = said.front();
  for (const RankFlags& each : said) any.add(RankFlags::of(each.words().data()));
  return any;
}

RankFlags with(SaveTrouble trouble) {
  RankFlags flags;
  flags.trouble = trouble;
  return flags;
}

// The exit status of each rank when they said this, in any order.
int end_of(std::vector<SaveTrouble> said) {
  std::sort(said.begin(), said.end());
  std::vector<int> ends;
  do {
    std::vector<RankFlags> rows;
    for (const SaveTrouble each : said) rows.push_back(with(each));
    ends.push_back(exit_status(end_code(any_of(rows).trouble)));
  } while (std::next_permutation(said.begin(), said.end()));
  for (const int end : ends) EXPECT_EQ(end, ends.front());
  return ends.front();
}

TEST(SaveTrouble, TheWorstOfAllRanksGivesEachTheSameExitStatus) {
  using enum SaveTrouble;
  // One disk is full; the others' saves were well, are tried again, have not ended, failed else.
  EXPECT_EQ(end_of({kDiskFull, kNone, kNone}), 74);
  EXPECT_EQ(end_of({kDiskFull, kFailed, kNone}), 74);
  EXPECT_EQ(end_of({kDiskFull, kTooLong, kFailed}), 74);
  EXPECT_EQ(end_of({kDiskFull, kDiskFull, kDiskFull}), 74);
  EXPECT_EQ(end_of({kTooLong, kFailed, kNone}), exit_status(Code::kIo));
  EXPECT_EQ(end_of({kTooLong, kTooLong, kTooLong}), exit_status(Code::kIo));
}

TEST(SaveTrouble, ARunGoesOnForItsOutageFromFailureToFailure) {
  constexpr double kMost_s = 600;
  for (const auto& [last, end] : {std::pair(Code::kNoSpace, SaveTrouble::kDiskFull),
                                  std::pair(Code::kIo, SaveTrouble::kTooLong)}) {
    EXPECT_EQ(trouble_of({100, 100, 1}, kMost_s, last), SaveTrouble::kFailed);
    EXPECT_EQ(trouble_of({100, 699, 60}, kMost_s, last), SaveTrouble::kFailed);
    EXPECT_EQ(trouble_of({100, 700, 2}, kMost_s, last), end);
    EXPECT_EQ(trouble_of({100, 100, 1}, 0, last), end) << "no outage is allowed";
  }
}

// Its saves are refused for good: no outage is waited for, and it may be started again.
TEST(SaveTrouble, ARunWhoseFolderAnotherOneTookEndsAtOnceWith75) {
  EXPECT_EQ(trouble_of({100, 100, 1}, 600, Code::kAborted), SaveTrouble::kTakenOver);
  EXPECT_EQ(end_of({SaveTrouble::kTakenOver, SaveTrouble::kNone}), 75);
  EXPECT_EQ(end_of({SaveTrouble::kTakenOver, SaveTrouble::kDiskFull}), 75);
}

TEST(RankFlags, AnyRanksWordCountsAndTheLeastSnapshot) {
  RankFlags one, other;
  one.stop = one.save_time = true;
  one.snapshot_step = 9;
  other.save_busy = other.snapshot_busy = true;
  other.snapshot_step = 7;
  const RankFlags any = any_of({one, other});
  EXPECT_TRUE(any.stop && any.save_busy && any.save_time && any.snapshot_busy);
  EXPECT_EQ(any.snapshot_step, 7);
  EXPECT_EQ(any_of({one}).snapshot_step, 9);
  EXPECT_FALSE(any_of({one}).save_busy);
}

}  // namespace
}  // namespace lockstep::core
