// What is read out of the environment, of scontrol's answer and of a batch script; answers as
// Slurm 22.05 gave them.
#include "launcher/slurm/job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::launcher::slurm {
namespace {

using testing::ElementsAre;

constexpr const char* kAnswer =
    "JobId=6 ArrayJobId=5 ArrayTaskId=3 JobName=batch.sh UserId=root(0) GroupId=root(0) "
    "MCS_label=N/A Priority=4294901757 Nice=0 Account=(null) QOS=(null) JobState=RUNNING "
    "Reason=None Dependency=(null) Requeue=1 Restarts=2 BatchFlag=1 Reboot=0 ExitCode=0:0 "
    "RunTime=00:00:40 TimeLimit=1-00:01:00 TimeMin=N/A EndTime=2026-11-22T21:11:30 "
    "Partition=lab ReqNodeList=(null) ExcNodeList=(null) NodeList=node[2-3] BatchHost=node1 "
    "NumNodes=2 NumCPUs=2\n";

Job array_task() {
  return job_from({{"SLURM_JOB_ID", "6"},
                   {"SLURM_ARRAY_JOB_ID", "5"},
                   {"SLURM_ARRAY_TASK_ID", "3"},
                   {"SLURMD_NODENAME", "node2"},
                   {"SLURM_STEP_ID", "0"},
                   {"SLURM_PROCID", "1"},
                   {"SLURM_RESTART_COUNT", "1"}})
      .value();
}

TEST(SlurmJob, OfTheEnvironment) {
  EXPECT_FALSE(job_from({}).has_value());
  const Job job = array_task();
  EXPECT_EQ(job.id, "5_3");  // 5 alone would be all of the array
  EXPECT_EQ(job.node, "node2");
  EXPECT_TRUE(job.in_step);
  EXPECT_FALSE(job.first_task);
  EXPECT_EQ(job.restarts, 1);
  EXPECT_FALSE(job.requeue || job.no_kill || job.batch || job.seconds_left);
  const Job told =
      job_from({{"SLURM_JOB_ID", "7"}, {kRequeueVariable, "0"}, {kNoKillVariable, "1"}}).value();
  EXPECT_EQ(told.id, "7");
  EXPECT_FALSE(told.in_step);
  EXPECT_TRUE(told.first_task);
  EXPECT_EQ(told.restarts, 0);  // unset at the first start
  EXPECT_EQ(told.requeue, false);
  EXPECT_EQ(told.no_kill, true);
}

TEST(SlurmJob, OfAnAnswer) {
  Job job = array_task();
  ASSERT_TRUE(add_answer(job, kAnswer));
  EXPECT_EQ(job.requeue, true);
  EXPECT_EQ(job.batch, true);
  EXPECT_EQ(job.restarts, 2);
  EXPECT_EQ(job.state, "RUNNING");
  EXPECT_EQ(job.reason, "None");
  EXPECT_EQ(job.batch_host, "node1");
  EXPECT_THAT(job.nodes, ElementsAre("node2", "node3"));  // not ReqNodeList, not ExcNodeList
  EXPECT_EQ(job.seconds_left, 24 * 3600 + 60 - 40);
  EXPECT_FALSE(job.no_kill.has_value());
}

TEST(SlurmJob, AnAnswerOverrulesTheEnvironment) {
  Job job = job_from({{"SLURM_JOB_ID", "6"}, {kRequeueVariable, "0"}}).value();
  ASSERT_TRUE(add_answer(job,
                         "JobId=6 Requeue=1 BatchFlag=0 JobState=RUNNING TimeLimit=UNLIMITED "
                         "RunTime=00:00:01 NodeList=(null)"));
  EXPECT_EQ(job.requeue, true);
  EXPECT_EQ(job.batch, false);
  EXPECT_FALSE(job.seconds_left.has_value());
  EXPECT_TRUE(job.unlimited);
  EXPECT_TRUE(job.nodes.empty());
}

TEST(SlurmJob, AFolderMayHaveBlanks) {
  Job job;
  const auto folder = [&job](const std::string& fields) {
    EXPECT_TRUE(add_answer(job, "JobId=6 Command=/a b.sh lr=1 WorkDir=" + fields));
    EXPECT_EQ(job.script, "/a b.sh lr=1");
    return job.folder;
  };
  EXPECT_EQ(folder("/runs StdErr=/runs/x\n"), "/runs");
  EXPECT_EQ(folder("/my runs/of may StdErr=/my runs/x StdIn=/dev/null\n"), "/my runs/of may");
  EXPECT_EQ(folder("/my runs/lr =1\n"), "/my runs/lr =1");
  EXPECT_EQ(folder("/my runs"), "/my runs");
}

TEST(SlurmJob, WhatIsNoAnswer) {
  Job job = array_task();
  EXPECT_FALSE(add_answer(job, ""));
  EXPECT_FALSE(add_answer(job, "slurm_load_jobs error: Invalid job id specified"));
  EXPECT_FALSE(add_answer(job, "JobId=5 Requeue=1\nJobId=6 Requeue=1\n"));
  EXPECT_FALSE(add_answer(job, "JobId=5 NodeList=node[1-"));
}

TEST(SlurmJob, Durations) {
  EXPECT_EQ(seconds_of("00:00:40"), 40);
  EXPECT_EQ(seconds_of("365-01:02:03"), ((365 * 24 + 1) * 60 + 2) * 60 + 3);
  for (const char* none : {"UNLIMITED", "INVALID", "", "12", "1:2", "a:b:c", "x-00:00:00"})
    EXPECT_FALSE(seconds_of(none).has_value()) << none;
}

TEST(SlurmJob, NoKillOfAScript) {
  EXPECT_EQ(no_kill_of_script("#!/bin/bash\n#SBATCH --no-kill\n"), true);
  EXPECT_EQ(no_kill_of_script("#SBATCH -N2 -k --time=1\n"), true);
  EXPECT_EQ(no_kill_of_script("#SBATCH --no-kill=off\n"), false);
  EXPECT_EQ(no_kill_of_script("#SBATCH --no-kill\n  # more\n\n#SBATCH --no-kill=no\n"), false);
  EXPECT_EQ(no_kill_of_script("#SBATCH --comment='not --no-kill' # nor --no-kill\n"), std::nullopt);
  EXPECT_EQ(no_kill_of_script("#!/bin/bash\nsrun --no-kill x\n#SBATCH --no-kill\n"), std::nullopt);
}

TEST(SlurmJob, WhatIsNotKnownIsTheCarefulCase) {
  Job job;
  EXPECT_EQ(policy_of(job), Policy::kNoRequeue);
  job.no_kill = true;
  EXPECT_EQ(policy_of(job), Policy::kNoRequeueNoKill);
  job.requeue = true;
  EXPECT_EQ(policy_of(job), Policy::kRequeueNoKill);
  job.no_kill = false;
  EXPECT_EQ(policy_of(job), Policy::kRequeue);
  job.batch = false;
  EXPECT_EQ(policy_of(job), Policy::kNone);
}

TEST(SlurmJob, CancelledOrOutOfTime) {
  Job job;
  job.state = "RUNNING";
  EXPECT_FALSE(is_cancelled(job));  // USR1 before the limit
  job.state = "COMPLETING";
  job.reason = "TimeLimit";
  EXPECT_FALSE(is_cancelled(job));
  job.reason = "None";  // all that scontrol shows of a scancel
  EXPECT_TRUE(is_cancelled(job));
}

}  // namespace
}  // namespace lockstep::launcher::slurm
