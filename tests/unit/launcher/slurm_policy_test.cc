// Every cell of the decision table, against docs/SLURM.md and against what must hold in all of it.
#include "launcher/slurm/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file_system.h"
#include "base/text.h"

namespace lockstep::launcher::slurm {
namespace {

using Then = Decision::Then;

TEST(SlurmPolicy, ThePageHasEveryCellOfTheTable) {
  const auto page = read_file(posix_file_system(), LOCKSTEP_SOURCE_DIR "/docs/SLURM.md");
  ASSERT_TRUE(page);
  std::string head = "| policy |", rule = "| --- |";
  for (const Happening happening : kHappenings) {
    head += text(" ", happening_name(happening), " |");
    rule += " --- |";
  }
  EXPECT_THAT(page.value(), testing::HasSubstr(head + "\n" + rule + "\n"));
  for (const Policy policy : kPolicies) {
    std::string row = text("| ", policy_name(policy), " |");
    for (const Happening happening : kHappenings)
      row += text(" ", decision_text(policy, happening), " |");
    EXPECT_THAT(page.value(), testing::HasSubstr(row + "\n"));
  }
}

TEST(SlurmPolicy, EveryCell) {
  const Decision go_on{.then = Then::kGoOn}, leave{.then = Then::kLeave},
      requeue{.then = Then::kRequeue};
  const Decision go_on_for_now{.then = Then::kGoOn, .slurm_ends_it = true};
  const Decision leave_and_end{.then = Then::kLeave, .end_job = true};
  const Decision requeue_no_kill{.then = Then::kRequeue, .end_job = true};
  // node lost, below minimum, stop, cancelled, finished, given up
  const std::vector<std::vector<Decision>> table = {
      {go_on, leave, leave, leave, leave, leave},
      {go_on, leave_and_end, leave_and_end, leave, leave_and_end, leave_and_end},
      {go_on_for_now, leave, leave, leave, leave, leave},
      {go_on, requeue_no_kill, requeue_no_kill, leave, leave_and_end, leave_and_end},
      {go_on_for_now, requeue, requeue, leave, leave, leave}};
  ASSERT_EQ(table.size(), std::size(kPolicies));
  for (size_t p = 0; p < table.size(); ++p) {
    ASSERT_EQ(table[p].size(), std::size(kHappenings));
    for (size_t h = 0; h < table[p].size(); ++h)
      EXPECT_EQ(decide(kPolicies[p], kHappenings[h]), table[p][h])
          << policy_name(kPolicies[p]) << ", " << happening_name(kHappenings[h]);
  }
}

TEST(SlurmPolicy, NobodyIsRequeuedAgainstTheUsersWord) {
  for (const Happening happening : kHappenings)
    for (const Policy policy : {Policy::kNone, Policy::kNoRequeue, Policy::kNoRequeueNoKill})
      EXPECT_NE(decide(policy, happening).then, Then::kRequeue) << happening_name(happening);
  for (const Policy policy : kPolicies)
    for (const Happening happening :
         {Happening::kCancelled, Happening::kFinished, Happening::kGivenUp})
      EXPECT_EQ(decide(policy, happening).then, Then::kLeave) << policy_name(policy);
}

}  // namespace
}  // namespace lockstep::launcher::slurm
