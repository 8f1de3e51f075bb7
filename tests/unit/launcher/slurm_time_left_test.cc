// Answers as Slurm 22.05 and 24.11 give them.
#include "launcher/slurm/time_left.h"

#include <gtest/gtest.h>

#include <ctime>

#include "base/text.h"

namespace lockstep::launcher::slurm {
namespace {

// So many seconds after `kNow`, as scontrol says it.
constexpr int64_t kNow = 1'800'000'000;
std::string local(int64_t seconds) {
  const std::time_t at = kNow + seconds;
  std::tm time{};
  ::localtime_r(&at, &time);
  char words[32];
  std::strftime(words, sizeof words, "%Y-%m-%dT%H:%M:%S", &time);
  return words;
}

std::string reservation(const std::string& name, int64_t begins_s, const std::string& flags,
                        const std::string& nodes) {
  return text("ReservationName=", name, " StartTime=", local(begins_s),
              " EndTime=", local(begins_s + 3600), " Duration=01:00:00 Nodes=", nodes,
              " NodeCnt=3 CoreCnt=192 ", "Features=(null) PartitionName=(null) Flags=", flags,
              " TRES=cpu=192 Users=root ", "State=INACTIVE\n");
}

class SlurmTimeLeft : public testing::Test {
 protected:
  SlurmTimeLeft() {
    job.nodes = {"node2", "node3"};
    job.seconds_left = 7200;
    job.end_time = local(7200);
  }
  Job job;
};

TEST_F(SlurmTimeLeft, IsThatOfTheTimeLimit) {
  const auto left = time_left(job, "No reservations in the system\n", kNow).value();
  ASSERT_TRUE(left);
  EXPECT_EQ(left->seconds, 7200);
  EXPECT_EQ(left->at, local(7200));
  EXPECT_EQ(left->what, "the time limit");
  job.seconds_left.reset();
  EXPECT_FALSE(time_left(job, "", kNow).ok()) << "nobody says whether there is one";
  job.unlimited = true;
  EXPECT_FALSE(time_left(job, "", kNow).value());
}

TEST_F(SlurmTimeLeft, EndsWithMaintenanceOfANodeOfTheJob) {
  const std::string late = reservation("late", 3600, "MAINT,SPEC_NODES", "node[3-5]");
  const std::string soon = reservation("soon", 600, "IGNORE_JOBS,MAINT", "node[1-2]");
  const auto left = time_left(job, late + soon, kNow).value();
  ASSERT_TRUE(left);
  EXPECT_EQ(left->seconds, 600);
  EXPECT_EQ(left->at, local(600));
  EXPECT_EQ(left->what, "the maintenance reservation soon");
  job.seconds_left.reset();
  job.unlimited = true;
  EXPECT_EQ(time_left(job, late, kNow).value()->seconds, 3600);
}

TEST_F(SlurmTimeLeft, OtherReservationsDoNotEndIt) {
  job.reservation = "own";
  for (const std::string& other :
       {reservation("users", 600, "SPEC_NODES", "node2"),
        reservation("others", 600, "MAINT", "node[7-9]"),
        reservation("after", 7300, "MAINT", "node2"), reservation("begun", -60, "MAINT", "node2"),
        reservation("own", 600, "MAINT", "node2"),
        std::string("ReservationName=odd StartTime=soon Nodes=node2 Flags=MAINT\n")})
    EXPECT_EQ(time_left(job, other, kNow).value()->what, "the time limit") << other;
}

}  // namespace
}  // namespace lockstep::launcher::slurm
