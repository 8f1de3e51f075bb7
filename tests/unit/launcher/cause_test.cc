// Who is blamed for the end of a generation.
#include "launcher/control/incident.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>

#include "supervisor_driver.h"

namespace lockstep::launcher::control {
namespace {

using testing::Contains;
using testing::ElementsAre;

// The worker of another node was killed by somebody, and a report of who lost it arrived first.
TEST(Cause, ASigkillThatNoAgentSentIsTheCauseWheneverItIsReported) {
  for (const AgentDid did : {AgentDid::kNothing, AgentDid::kToldToLetGo}) {
    Driver d(workers(3));
    EXPECT_THAT(d.start().exits({ended(0, 76)}), ElementsAre("kill"));
    EXPECT_THAT(d.records, testing::Not(Contains("failure_detected")));
    WorkerExit lost = killed(1, SIGKILL);
    lost.agent_did = did;
    lost.no_memory = true;
    d.died({lost});
    EXPECT_EQ(d.blamed, 1);
    d.exits({killed(2, SIGKILL)});
    const Incident& incident = d.supervisor.incidents()[0];
    EXPECT_EQ(incident.primary.rank, 1);
    EXPECT_EQ(failure_status(incident.primary), kExitNoMemory);
    EXPECT_EQ(std::count(d.records.begin(), d.records.end(), "failure_detected"), 1);
  }
  // Nobody says more than that a peer was lost.
  Driver alone(workers(2));
  alone.start().exits({ended(1, 76)});
  EXPECT_EQ(alone.blamed, -1);
  alone.exits({killed(0, SIGKILL)});
  EXPECT_EQ(alone.blamed, 1);
  // A bug before the order to let go comes before a kill after it.
  Driver bug(workers(2));
  bug.start().exits({ended(0, 70)});
  WorkerExit later = killed(1, SIGKILL);
  later.agent_did = AgentDid::kToldToLetGo;
  bug.died({later});
  EXPECT_EQ(bug.supervisor.incidents()[0].primary.rank, 0);
}

TEST(Cause, ShrinkCountsTheWorkersThatOthersKilled) {
  SupervisorOptions options = workers(4);
  options.shrink = true;
  Driver d(options);
  d.start().exits({ended(0, 76)});
  d.died({killed(1, SIGKILL), killed(2, SIGKILL)});
  EXPECT_THAT(d.exits({killed(3, SIGKILL)}), ElementsAre("spawn 1 x2"));
}

}  // namespace
}  // namespace lockstep::launcher::control
