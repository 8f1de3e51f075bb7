// What `lockstep why` says of a run that ended: by its input, its storage, a request, or in vain.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

#include "base/text.h"
#include "cli/status/status_report.h"
#include "tests/unit/cli/told_job.h"

namespace lockstep::cli {
namespace {

using launcher::WorkerExit;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;
namespace control = launcher::control;

// A run of two ranks that ends with this code of rank 1, after 9 steps and a checkpoint of step 6.
Account ended_with(int code, const std::string& error) {
  control::SupervisorOptions options;
  options.max_restarts = 0;
  ToldJob job(2, {"node1"}, options);
  job.steps(1, 9, 6);
  job.fails(exit_of(1, code, error), {exit_of(0, code)});
  return job.account();
}

TEST(WhyEnd, ALossThatIsNotFinite_NamesTheStepAndThePolicy) {
  const Account told = ended_with(
      64,
      "step 10: loss nan, gradient norm 2.4: not finite; the update was not made and step 9 is "
      "saved");
  EXPECT_EQ(told.what,
            "The loss or the gradient of step 10 is not a finite number (NaN or infinite), and "
            "training.nan_policy is \"stop\"");
  EXPECT_EQ(told.did,
            "It stopped all ranks and ended with status 64, because the same input would "
            "fail again.");
  EXPECT_THAT(things_to_do(told), HasSubstr("Lower optimizer.lr"));
  EXPECT_EQ(told.exit_status, 64);
}

TEST(WhyEnd, AFullDisk_SaysWhereAndHowToMakeRoom) {
  const Account told =
      ended_with(74, "the final save of step 9 failed: disk full: /run/x: 1.20 GiB more wanted");
  EXPECT_EQ(told.what,
            "The disk is full, so the checkpoint cannot be saved: /run/x: 1.20 GiB more wanted");
  EXPECT_STREQ(name_of(told.cause), "disk_full");
  EXPECT_THAT(things_to_do(told), HasSubstr("lockstep checkpoint prune"));
  EXPECT_THAT(things_to_do(told), HasSubstr("it resumes after step 6."));
  EXPECT_EQ(told.cost.steps_again, 3);
  EXPECT_DOUBLE_EQ(told.cost.seconds_again, 1.5);
  EXPECT_THAT(account_text(told), HasSubstr("cost    3 steps (1.5 s) are computed again when the "
                                            "run is resumed; on 2 ranks that is less than 0.01 "
                                            "rank-hours\n"));
}

TEST(WhyEnd, ALimitOnFileSizes_IsNotAFullDisk) {
  const Account told =
      ended_with(74, "beyond a limit on file sizes (`ulimit -f`): /run/x: File too large");
  EXPECT_STREQ(name_of(told.cause), "file_size_limit");
  EXPECT_THAT(things_to_do(told), HasSubstr("ulimit -f unlimited"));
}

TEST(WhyEnd, StorageThatRefuses_IsNoBug) {
  const Account told =
      ended_with(70, "saves have failed for longer than checkpoint.outage_minutes = 10: EIO");
  EXPECT_THAT(told.what, HasSubstr("The checkpoint storage refused all saves for too long: "));
  EXPECT_THAT(things_to_do(told), HasSubstr("Look at the file server or disk"));
}

TEST(WhyEnd, StorageThatHangs_IsTold) {
  const Account told =
      ended_with(70, "saves have failed; storage has not answered for 600 s on this rank");
  EXPECT_THAT(told.what, HasSubstr("The checkpoint storage did not answer for too long: "));
}

TEST(WhyEnd, ADamagedLastCheckpoint_SaysThatTheOneBeforeIsUsed) {
  const Account told = ended_with(
      70, "the final checkpoint cannot be read back: /c/step_9: rank 1: rank_00001.h5: damaged");
  EXPECT_THAT(told.what, HasSubstr("The last checkpoint was damaged after it was written: "));
  EXPECT_THAT(things_to_do(told), HasSubstr("goes back to the checkpoint before the damaged one"));
}

TEST(WhyEnd, ADataFileThatCannotBeRead_IsNamed) {
  const Account told =
      ended_with(70, "/data/train_00000.bin: the read failed for 600 s and 40 tries: EIO");
  EXPECT_EQ(told.what,
            "A data file could not be read for too long: /data/train_00000.bin: the "
            "read failed for 600 s and 40 tries: EIO");
}

TEST(WhyEnd, ADamagedDataFile_SaysHowToMakeItAgain) {
  const Account told = ended_with(
      64,
      "/data/train_00000.bin: block 3 has another checksum; the file was damaged after prepare. "
      "Run `lockstep prepare` again with --force");
  EXPECT_THAT(told.what, HasSubstr("A data file is damaged: /data/train_00000.bin"));
  EXPECT_THAT(things_to_do(told), HasSubstr("`lockstep prepare` again with --force"));
}

TEST(WhyEnd, RanksOfTwoRuns_AreToldApartFromAWrongConfig) {
  const Account told = ended_with(
      64,
      "rank 1 differs from rank 0 in optimizer.lr. All ranks of a job must compute the same "
      "run: start each with the same config, data and program");
  EXPECT_STREQ(name_of(told.cause), "ranks_differ");
}

TEST(WhyEnd, AFolderThatCannotBeWritten_NamesTheKey) {
  const Account told =
      ended_with(64, "cannot write checkpoints to /c (checkpoint.folder): open: Permission denied");
  EXPECT_THAT(things_to_do(told), HasSubstr("Correct the permissions or checkpoint.folder."));
}

TEST(WhyEnd, ADeviceThatCannotBeUsed_IsNoConfig) {
  const Account told = ended_with(70, "CUDA error: device-side assert triggered");
  EXPECT_EQ(told.what,
            "The GPU of rank 1 on node1 cannot be used: CUDA error: device-side assert "
            "triggered");
}

TEST(WhyEnd, ABug_AsksForTheLog) {
  const Account told = ended_with(70, "impossible state");
  EXPECT_EQ(told.what,
            "Rank 1 on node1 ended with exit code 70 (a bug, or a disk that failed): impossible "
            "state");
  EXPECT_THAT(things_to_do(told), HasSubstr("report it as a bug, with the log"));
}

TEST(WhyEnd, WrongBits_NameTheNodeToLeaveOut) {
  const Account told = ended_with(
      77,
      "step 8: an audit found that rank 1 on node1 has wrong bits: slot 3; the update was not "
      "made. Exclude the node from the next job (sbatch --exclude)");
  EXPECT_THAT(told.what,
              HasSubstr("Step 8: an audit found that rank 1 on node1 has wrong bits: slot 3"));
  EXPECT_THAT(told.did, HasSubstr("marked as suspect"));
  EXPECT_THAT(things_to_do(told), HasSubstr("sbatch --exclude=node1"));
}

TEST(WhyEnd, AWorkerOfTrainThatWasKilled_WasNotRestarted) {
  control::SupervisorOptions options;
  options.max_restarts = 0;
  ToldJob job(2, {"node1"}, options);
  job.steps(1, 9);
  job.fails(killed_by(1, SIGKILL));
  const Account told = job.account();
  EXPECT_THAT(told.did, HasSubstr("ended with status 75. It was not restarted, because `lockstep "
                                  "train`"));
  EXPECT_THAT(things_to_do(told), HasSubstr("it starts from step 0, because there is no "
                                            "checkpoint."));
  EXPECT_EQ(told.cost.steps_again, 9);
}

TEST(WhyEnd, TheSameFailureTwice_TellsTheFirst) {
  ToldJob job(2);
  job.steps(1, 9, 6);
  job.fails(exit_of(1, 70, "impossible state"));
  job.recovers(7, 9);
  job.fails(exit_of(1, 70, "impossible state"));
  const Account told = job.account();
  EXPECT_EQ(told.exit_status, 93);
  EXPECT_EQ(told.generation, 1);
  EXPECT_THAT(told.did, HasSubstr("It restarted once, failed at the same step in the same way, and "
                                  "gave up with status 93."));
  EXPECT_EQ(told.failures, 2);
}

TEST(WhyEnd, RestartsInVain_TellTheFirstFailureAndCountThem) {
  ToldJob job(2);
  job.steps(1, 9, 6);
  job.fails(killed_by(1, SIGKILL));
  for (int i = 0; i < 3; ++i) {
    job.recovers(7, 8);
    job.fails(killed_by(0, SIGSEGV));
  }
  const Account told = job.account();
  EXPECT_EQ(told.exit_status, 93);
  EXPECT_THAT(told.what, HasSubstr("Rank 1 on node1 was killed by SIGKILL"));
  EXPECT_THAT(told.did, HasSubstr("It restarted 3 times, made no new checkpoint, and gave up with "
                                  "status 93."));
}

TEST(WhyEnd, TooLittleMemoryTwice_EndsWith71) {
  ToldJob job(2);
  for (int i = 0; i < 2; ++i) {
    job.steps(1, 3);
    job.fails(exit_of(1, 71, "out of memory: 2.0 GiB"));
    if (i == 0) job.start();
  }
  const Account told = job.account();
  EXPECT_EQ(told.exit_status, 71);
  EXPECT_EQ(told.what, "Rank 1 on node1 ran out of memory: out of memory: 2.0 GiB");
  EXPECT_THAT(things_to_do(told), HasSubstr("lockstep plan CONFIG --device-memory SIZE"));
}

TEST(WhyEnd, AStopOnRequest_IsNoFailure) {
  ToldJob job(2);
  job.steps(1, 9);
  job.save(9);
  job.feed(control::StopRequested{SIGTERM});
  job.all_end(75);
  const Account told = job.account();
  EXPECT_EQ(told.what,
            "A stop was requested: SIGTERM, as `scancel`, a preemption or `kill` sends "
            "it");
  EXPECT_EQ(told.did, "All ranks saved step 9 and ended with status 75.");
  EXPECT_EQ(told.state, "stopped");
  EXPECT_EQ(told.cost.steps_again, 0);
  EXPECT_THAT(account_text(told), HasSubstr("cost    no step is lost\n"));
  EXPECT_THAT(status_text(job.status()), HasSubstr("`lockstep why "));
}

TEST(WhyEnd, TheEndOfTheAllocation_IsToldAsSuch) {
  for (const int signal : {SIGUSR1, control::kAllocationEnds}) {
    ToldJob job(2);
    job.steps(1, 9);
    job.save(9);
    job.feed(control::StopRequested{signal});
    job.all_end(75);
    EXPECT_THAT(job.account().what, HasSubstr("The time of the job ended: ")) << signal;
  }
}

TEST(WhyEnd, AStopThatDidNotSave_SaysSo) {
  ToldJob job(2);
  job.steps(1, 9, 6);
  job.feed(control::StopRequested{SIGINT});
  job.wait(2);
  job.feed(control::StopRequested{SIGINT});
  WorkerExit killed = killed_by(0, SIGKILL);
  killed.agent_did = launcher::AgentDid::kKilled;
  job.fails(killed);
  const Account told = job.account();
  EXPECT_THAT(told.what, HasSubstr("Ctrl-C"));
  EXPECT_THAT(told.did, HasSubstr("but not every rank saved; the newest checkpoint counts."));
  EXPECT_EQ(told.cost.steps_again, 3);
}

TEST(WhyEnd, AStopOnAFullDisk_NamesTheDisk) {
  ToldJob job(2);
  job.steps(1, 9, 6);
  job.feed(control::StopRequested{SIGTERM});
  job.all_end(74);
  const Account told = job.account();
  EXPECT_THAT(told.what, HasSubstr("A stop was requested: SIGTERM"));
  EXPECT_THAT(told.did,
              HasSubstr("The first that did not save: rank 0 on node1, exit code 74 (disk "
                        "full, or a file-size limit)."));
  EXPECT_THAT(things_to_do(told), HasSubstr("Make room"));
  EXPECT_EQ(told.cost.steps_again, 3);
}

TEST(WhyEnd, AWorkerThatDiesBeforeAStop_IsTheCause) {
  ToldJob job(2);
  job.steps(1, 9, 6);
  job.feed(control::WorkersExited{{killed_by(1, SIGKILL)}, 0});
  job.feed(control::StopRequested{SIGTERM});
  WorkerExit last = killed_by(0, SIGKILL);
  last.agent_did = launcher::AgentDid::kKilled;
  job.feed(control::WorkersExited{{last}, 0});
  const Account told = job.account();
  EXPECT_THAT(told.what, HasSubstr("Rank 1 on node1 was killed by SIGKILL"));
  EXPECT_THAT(told.did, HasSubstr("not restarted, because a stop was requested"));
}

TEST(WhyEnd, ACommandThatWasRefused_ChangesNothing) {
  ToldJob job(2);
  job.steps(1, 9);
  job.save(9);
  job.all_end(0);
  job.launch(2);
  job.fails(exit_of(0, 64,
                    "the config describes another model than the checkpoint: model.dim: "
                    "checkpoint 64, config 128"),
            {exit_of(1, 64)});
  const Account told = job.account();
  EXPECT_EQ(told.what,
            "The newest command was refused before its first step: the config does not fit the "
            "checkpoint of this run: the config describes another model than the checkpoint: "
            "model.dim: checkpoint 64, config 128");
  EXPECT_THAT(told.remarks, Contains("The launch before it ended with status 0: done."));
  EXPECT_THAT(things_to_do(told), HasSubstr("Undo this change"));
  const RunStatus status = job.status();
  EXPECT_EQ(status.state, "done");
  EXPECT_EQ(status.membership.exit_status, 0);
  EXPECT_THAT(status_text(status), HasSubstr("refused: the newest command did not start"));
  EXPECT_THAT(status_text(status), Not(HasSubstr("last failure")));
}

TEST(WhyEnd, ADamageOfAllCheckpoints_SaysHowToGoOn) {
  ToldJob job(2);
  job.steps(1, 9);
  job.all_end(75);
  job.launch(2);
  job.fails(exit_of(0, 64,
                    "no checkpoint in /c can be used; repair one, or move the folder away to "
                    "start from step 0:"),
            {exit_of(1, 64)});
  EXPECT_THAT(things_to_do(job.account()), HasSubstr("Run `lockstep checkpoint list`"));
}

TEST(WhyEnd, AFirstCommandThatWasRefused_Failed) {
  ToldJob job(2);
  job.fails(exit_of(0, 64, "no data: give --data.path DIR"), {exit_of(1, 64)});
  const Account told = job.account();
  EXPECT_EQ(told.what,
            "The config, the data or the environment is wrong: no data: give "
            "--data.path DIR");
  EXPECT_EQ(job.status().state, "failed");
}

TEST(WhyEnd, AnAgentThatIsGone_SaysThatNobodyWasLeft) {
  ToldJob job(2);
  for (int rank = 0; rank < 2; ++rank) job.write(text("page_", rank), "");
  job.steps(1, 9, 6);
  const Account told = job.account();
  EXPECT_THAT(told.what, HasSubstr("The launcher (process 999999999) ended without a word"));
  EXPECT_STREQ(name_of(told.cause), "agent_gone");
  EXPECT_EQ(told.cost.steps_again, 3);
}

TEST(WhyEnd, WorkersThatCannotBeStarted_AreTold) {
  ToldJob job(2);
  job.steps(1, 9, 6);
  job.fails(killed_by(1, SIGKILL));
  job.feed(control::SpawnFailed{"lockstep-worker: No such file or directory"});
  const Account told = job.account();
  EXPECT_THAT(told.did, HasSubstr("ended with status 70"));
}

TEST(WhyEnd, AJobThatNeverHadItsNodes_NamesHowManyCame) {
  ToldJob job(1, {"node1", "node2"});
  job.steps(1, 9);
  job.all_end(0);
  const auto before = read_file(posix_file_system(), job.folder() / "events.jsonl").value();
  job.write("events.jsonl",
            before + R"({"t":1800000100,"event":"waiting_for_nodes","generation":2,"world_size":0})"
                     "\n"
                     R"({"t":1800000160,"event":"failed","generation":2,"world_size":0,)"
                     R"("exit_status":75,"reason":"only 1 of 2 nodes joined"})"
                     "\n");
  job.publish("failed", 75, ToldJob::kNobody);
  const Account told = job.account();
  EXPECT_EQ(told.what, "Only 1 of 2 nodes joined");
  EXPECT_THAT(things_to_do(told), HasSubstr("--nnodes MIN:MAX"));
}

TEST(WhyEnd, ARunOfSrun_SaysWhatIsNotKnown) {
  ToldJob job(2);
  job.steps(1, 9);
  for (const char* name : {"events.jsonl", "workers.json"})
    ASSERT_TRUE(posix_file_system().remove(job.folder() / name).ok());
  EXPECT_TRUE(job.account().well) << "it may train still";
  job.wait(60);
  const Account told = job.account();
  EXPECT_THAT(told.what,
              HasSubstr("srun or torchrun started its ranks; rank 0 logged step 9 last"));
}

TEST(WhyEnd, AFolderWithoutARun_IsAnError) {
  const test_support::TempDir empty;
  EXPECT_EQ(read_account(posix_file_system(), system_clock(), empty.path()).error().code,
            Code::kNotFound);
}

}  // namespace
}  // namespace lockstep::cli
