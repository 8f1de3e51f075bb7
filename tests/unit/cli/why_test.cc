// What `lockstep why` says of a run whose workers, nodes or devices failed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

#include "base/json.h"
#include "base/text.h"
#include "tests/unit/cli/told_job.h"

namespace lockstep::cli {
namespace {

using launcher::WorkerExit;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
namespace control = launcher::control;

std::vector<std::string> chain_words(const Account& account) {
  std::vector<std::string> all;
  for (const ChainLink& link : account.chain) all.push_back(link.words);
  return all;
}

// What is said of a worker of node2 that ends so, and of which the run recovers.
Account recovered_from(const WorkerExit& exit) {
  ToldJob job(1, {"node1", "node2"});
  job.steps(1, 9, 6);
  job.fails(exit);
  job.recovers(7, 20);
  job.all_end(0);
  return job.account();
}

TEST(Why, AWorkerThatWasKilled_IsToldWithPlaceCostAndWhatFollowed) {
  ToldJob job(1, {"node1", "node2"});
  job.run_args(/*on_gpus=*/true);
  job.steps(1, 9, 6);
  job.fails(killed_by(1, SIGKILL), {exit_of(0, 76)});
  job.recovers(7, 20);
  job.all_end(0);
  const Account told = job.account();
  EXPECT_EQ(told.what,
            "Rank 1 on node2 was killed by SIGKILL; Lockstep did not send this signal, so a "
            "person, Slurm or another program did");
  EXPECT_STREQ(name_of(told.cause), "worker_killed");
  EXPECT_EQ(told.node, "node2");
  EXPECT_EQ(told.rank, 1);
  EXPECT_EQ(told.gpu, 0);
  EXPECT_EQ(told.step, 10);
  EXPECT_EQ(told.cost.steps_again, 3);
  EXPECT_DOUBLE_EQ(told.cost.seconds_again, 1.5);
  EXPECT_NEAR(told.cost.seconds_down, 0.82, 1e-6);
  EXPECT_NEAR(told.cost.rank_seconds(), 2 * 2.32, 1e-6);
  EXPECT_EQ(told.did,
            "It stopped the other ranks, went back to step 6 and trained again with 2 ranks after "
            "0.8 s. The run reached its end.");
  EXPECT_THAT(things_to_do(told), HasSubstr("Nothing now: the run went on by itself."));
  EXPECT_THAT(chain_words(told),
              ElementsAre("rank 1 on node2: killed by SIGKILL, at step 10",
                          "rank 0 on node1: exit code 76 (lost a peer), at step 10",
                          "all ranks of generation 1 have ended",
                          "generation 2 starts with 2 ranks", "training continues from step 7",
                          "ranks 0, 1: exit code 0 (done)", "the launch ends with status 0: done"));
  const std::string shown = account_text(told);
  EXPECT_THAT(shown, HasSubstr("what    Rank 1 on node2 was killed by SIGKILL; "));
  EXPECT_THAT(shown, HasSubstr("where   node node2, rank 1, GPU 0 of those that the job has there, "
                               "process 4001\n"));
  EXPECT_THAT(shown, HasSubstr("cost    3 steps (1.5 s) are computed again, and 0.8 s passed "
                               "without training; on 2 ranks that is less than 0.01 GPU-hours\n"));
  EXPECT_THAT(shown, HasSubstr("\n       0.02  rank 0 on node1: exit code 76 (lost a peer)"));
  const auto json = account_json(told);
  EXPECT_EQ(json["cause"], "worker_killed");
  EXPECT_EQ(json["gpu"], 0);
  EXPECT_EQ(json["cost"]["steps_again"], 3);
  EXPECT_EQ(json["chain"].size(), 7u);
  EXPECT_EQ(json["chain"][1]["node"], "node1");
}

TEST(Why, AMemoryKill_NamesTheKernelAndThePlan) {
  WorkerExit exit = killed_by(1, SIGKILL);
  exit.no_memory = true;
  const Account told = recovered_from(exit);
  EXPECT_EQ(told.what,
            "The kernel killed rank 1 on node2 because the memory of that machine ran out");
  EXPECT_THAT(things_to_do(told), HasSubstr("`lockstep plan` shows what fits"));
}

TEST(Why, ACrash_SaysWhatTheSignalMeans) {
  EXPECT_EQ(recovered_from(killed_by(1, SIGSEGV)).what,
            "Rank 1 on node2 crashed with SIGSEGV (it used memory that is not its own)");
  EXPECT_EQ(recovered_from(killed_by(0, SIGABRT)).what,
            "Rank 0 on node1 crashed with SIGABRT (a check of the program failed)");
  EXPECT_THAT(recovered_from(killed_by(1, SIGBUS)).what, HasSubstr("/dev/shm is full"));
  EXPECT_THAT(things_to_do(recovered_from(killed_by(1, SIGSEGV))), HasSubstr("report it as a bug"));
}

TEST(Why, AHang_CountsTheSilenceAsCost) {
  ToldJob job(1, {"node1", "node2"});
  job.steps(1, 9, 6);
  job.silent(121, /*stopped=*/false);
  job.fails(killed_by(1, SIGKILL));
  job.recovers(7, 12);
  const Account told = job.account();
  EXPECT_THAT(told.what, HasSubstr("hung: it made no progress for 120.0 s"));
  EXPECT_GT(told.cost.seconds_down, 120);
  EXPECT_THAT(things_to_do(told), HasSubstr("launcher.hang_seconds"));
}

TEST(Why, AStoppedProcess_IsNoHang) {
  ToldJob job(1, {"node1", "node2"});
  job.steps(1, 9, 6);
  job.silent(6, /*stopped=*/true);
  job.fails(killed_by(0, SIGKILL));
  job.recovers(7, 12);
  const Account told = job.account();
  EXPECT_THAT(told.what, HasSubstr("The process of rank 1 on node2 was stopped from outside "
                                   "(SIGSTOP) for 5."));
  EXPECT_STREQ(name_of(told.cause), "worker_stopped");
}

WorkerExit lost_with(int rank, const std::string& why) {
  WorkerExit exit = exit_of(rank, 0);
  exit.node_lost = why;
  return exit;
}

TEST(Why, ALostNode_IsNamedAndTheRunGoesOnSmaller) {
  ToldJob job(1, {"node1", "node2", "node3"});
  job.steps(1, 9, 6);
  job.says("node_lost", "node node2: its connection has ended");
  job.nodes_left({"node1", "node3"});
  job.fails(lost_with(1, "node node2 lost: its connection has ended"));
  job.recovers(7, 20);
  const Account told = job.account();
  EXPECT_EQ(told.what, "Node node2 was lost: its connection has ended; rank 1 was lost with it");
  EXPECT_EQ(told.node, "node2");
  EXPECT_THAT(told.did, HasSubstr("trained again with 2 ranks instead of 3"));
  EXPECT_THAT(things_to_do(told), HasSubstr("sbatch --exclude=node2"));
  EXPECT_EQ(told.chain.front().words, "node node2: its connection has ended");
}

TEST(Why, TooFewNodesLeft_SaysWhichWasLostAndHowToResume) {
  ToldJob job(1, {"node1", "node2"});
  job.steps(1, 9, 6);
  job.says("node_lost", "node node2: silent for 1.5 s");
  job.nodes_left({}, "1 nodes are left and 2 are needed");
  job.fails(lost_with(1, "node node2 lost: silent for 1.5 s"));
  const Account told = job.account();
  EXPECT_EQ(told.what, "Node node2 was lost: silent for 1.5 s; rank 1 was lost with it");
  EXPECT_EQ(told.did,
            "It stopped all ranks and ended with status 75: 1 nodes are left and 2 are needed.");
  EXPECT_THAT(things_to_do(told), HasSubstr("it resumes after step 6."));
  EXPECT_EQ(told.cost.steps_again, 3);
  EXPECT_TRUE(told.cost.when_resumed);
}

TEST(Why, ALostCoordinator_IsToldByItsSuccessor) {
  ToldJob job(1, {"node1", "node2"});
  job.steps(1, 9, 6);
  job.fails(lost_with(0, "the node that coordinated the job is lost"));
  job.recovers(7, 12);
  EXPECT_EQ(job.account().what, "The node that coordinated the job was lost");
}

TEST(Why, ABarredNode_NamesItsHardware) {
  const std::string why =
      "node node2 runs no more workers: an uncorrected memory error; leave it "
      "out of the next job (sbatch --exclude)";
  ToldJob job(1, {"node1", "node2"});
  job.steps(1, 9, 6);
  job.says("node_barred", why);
  job.nodes_left({"node1"});
  job.fails(lost_with(1, "node node2 lost: an uncorrected memory error"));
  job.recovers(7, 12);
  const Account told = job.account();
  EXPECT_EQ(told.what, "Hardware failed: " + why);
  EXPECT_THAT(things_to_do(told), HasSubstr("Have its hardware tested."));
}

TEST(Why, ANodeBarredByAnAudit_IsAboutWrongBits) {
  ToldJob job(1, {"node1", "node2"});
  job.steps(1, 9, 6);
  job.says("node_barred",
           "node node2 runs no more workers: an audit found that the bits of rank 1 "
           "are wrong; leave it out of the next job (sbatch --exclude)");
  job.nodes_left({"node1"});
  job.fails(lost_with(1, "node node2 lost: an audit found that the bits of rank 1 are wrong"));
  job.recovers(7, 12);
  const Account told = job.account();
  EXPECT_STREQ(name_of(told.cause), "wrong_bits");
  EXPECT_THAT(told.what, HasSubstr("an audit found that the bits of rank 1 are wrong"));
}

TEST(Why, ASlowNodeThatWasReplaced_IsNoFailureOfAWorker) {
  ToldJob job(1, {"node1", "node2"});
  job.steps(1, 9, 6);
  job.says("node_replaced",
           "a spare takes the place of node node2: rank 1 is slow: 700.0 ms for a "
           "slot, the others 410.0 ms");
  job.nodes_left({"node1", "node3"});
  job.fails(lost_with(1, "node node2 lost: rank 1 is slow"));
  job.recovers(7, 12);
  const Account told = job.account();
  EXPECT_THAT(told.what, HasSubstr("A slow node was replaced: a spare takes the place of node "
                                   "node2: rank 1 is slow"));
  EXPECT_THAT(things_to_do(told), HasSubstr("Run `lockstep doctor` on node2."));
}

TEST(Why, OnlyALostPeer_AdmitsThatTheFirstFailureIsUnknown) {
  const Account told =
      recovered_from(exit_of(1, 76, "block 3 gather: no answer from a peer within 300 s"));
  EXPECT_EQ(told.what,
            "Rank 1 on node2 lost the connection to another rank, and nobody saw which rank failed "
            "first: block 3 gather: no answer from a peer within 300 s");
}

TEST(Why, AMissingLibrary_SaysThatTheWorkerCannotStart) {
  ToldJob job(1, {"node1", "node2"});
  job.fails(exit_of(1, 127));
  const Account told = job.account();
  EXPECT_EQ(told.what,
            "Rank 1 on node2 could not start, because a program or a library is missing");
}

TEST(Why, AnUnknownExitCode_IsSaidAsItIs) {
  EXPECT_EQ(
      recovered_from(exit_of(1, 3)).what,
      "Rank 1 on node2 ended with exit code 3, which Lockstep does not use; it logged no error");
}

TEST(Why, SeveralFailures_AddUpTheirCosts) {
  ToldJob job(1, {"node1", "node2"});
  job.steps(1, 9, 6);
  job.fails(killed_by(1, SIGKILL));
  job.recovers(7, 20);
  job.save(18);
  job.fails(killed_by(0, SIGSEGV));
  job.recovers(19, 30);
  const Account told = job.account();
  EXPECT_THAT(told.what, HasSubstr("Rank 0 on node1 crashed"));
  EXPECT_EQ(told.failures, 2);
  EXPECT_EQ(told.cost.steps_again, 2);
  EXPECT_EQ(told.total.steps_again, 5);
  EXPECT_THAT(account_text(told), HasSubstr("total   2 failures of this launch; "));
}

TEST(Why, ARecoveryUnderWay_SaysWait) {
  ToldJob job(1, {"node1", "node2"});
  job.steps(1, 9, 6);
  job.fails(killed_by(1, SIGKILL));
  job.start();
  job.publish("running", -1, ::getpid());
  const Account told = job.account();
  EXPECT_EQ(told.did, "It stopped the other ranks and is starting again.");
  EXPECT_THAT(things_to_do(told), HasSubstr("Wait: the run is recovering."));
}

TEST(Why, AHealthyRun_IsToldInOneLine) {
  ToldJob job(1, {"node1", "node2"});
  job.steps(1, 9, 6);
  job.all_end(0);
  const Account done = job.account();
  EXPECT_TRUE(done.well);
  EXPECT_EQ(account_text(done),
            text(job.folder().string(), ": It is done, at step 9 of 100; nothing has failed.\n"));
  EXPECT_EQ(account_json(done)["well"], true);
}

// Each line of the log says what the one before it cost.
TEST(Why, TheEventOfARecovery_HasTheStepsAndSecondsThatAreComputedAgain) {
  ToldJob job(1, {"node1", "node2"});
  job.steps(1, 9, 6);
  job.fails(killed_by(1, SIGKILL));
  job.recovers(7, 9);
  const auto events = read_file(posix_file_system(), job.folder() / "events.jsonl").value();
  EXPECT_THAT(events, HasSubstr("\"redone_steps\":3,\"redone_s\":1.5"));
  EXPECT_THAT(events, HasSubstr("\"nodes\":[\"node1\",\"node2\"]"));
  EXPECT_THAT(events, HasSubstr("\"event\":\"failure_detected\",\"generation\":1,\"world_size\":2,"
                                "\"rank\":1"));
  EXPECT_THAT(events, HasSubstr("\"node\":\"node2\""));
}

}  // namespace
}  // namespace lockstep::cli
