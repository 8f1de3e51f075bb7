#include "launcher/control/handover.h"

#include <gtest/gtest.h>

namespace lockstep::launcher::control {
namespace {

TEST(Handover, AJobThatBeginsTakesNothingOver) {
  SupervisorOptions options;
  options.first_generation = 7;
  EXPECT_EQ(next_generation({}, 7), 7);
  EXPECT_EQ(succeeding(options, {}).first_generation, 7);
}

TEST(Handover, AStandbyGoesOnWithWhatTheLostCoordinatorKnew) {
  Handover before;
  before.generation = 3;
  before.members = {11, 12, 13};
  before.lost = 12;
  before.safe_step = 40;
  before.restarts = 2;
  EXPECT_EQ(next_generation(before, 1), 4);
  const SupervisorOptions options = succeeding({}, before);
  EXPECT_EQ(options.safe_step, 40);
  EXPECT_EQ(options.restarts_since_safe, 2);
  const TookOver loss = loss_of_leader(before, /*per_node=*/8);
  EXPECT_EQ(loss.world_size, 24);
  EXPECT_EQ(loss.lost.rank, 8) << "the first one of the second node";
  EXPECT_EQ(loss.lost.progress.committed_step, 40);
}

}  // namespace
}  // namespace lockstep::launcher::control
