// The commands around the agent: what they refuse, what their help says, what status prints.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "base/text.h"
#include "cli/launch/launch_command.h"
#include "cli/status/status_command.h"
#include "launcher/host/process.h"
#include "launcher/host/run_files.h"
#include "launcher/host/scratch_folder.h"

namespace lockstep::cli {
namespace {

using testing::HasSubstr;

struct Outcome {
  int status;
  std::string out, err;
};

Outcome call(int (*command)(int, char**), std::vector<std::string> words) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const int status = command(static_cast<int>(argv.size()), argv.data());
  const std::string out = testing::internal::GetCapturedStdout();
  return {status, out, testing::internal::GetCapturedStderr()};
}

class Commands : public testing::Test {
 protected:
  const launcher::ScratchFolder scratch = launcher::ScratchFolder::create().value();
  const std::filesystem::path folder = scratch.path();
};

TEST_F(Commands, HelpHasExamplesAndNeedsNoConfig) {
  for (const char* flag : {"--help", "-h"}) {
    const Outcome train = call(train_command, {"train", flag});
    EXPECT_EQ(train.status, 0);
    EXPECT_THAT(train.out, HasSubstr("Examples:\n  lockstep train"));
    EXPECT_THAT(train.out, HasSubstr("nproc_per_node"));
    const Outcome launch = call(launch_command, {"launch", flag});
    EXPECT_EQ(launch.status, 0);
    EXPECT_THAT(launch.out, HasSubstr("Examples:\n  lockstep launch"));
    EXPECT_THAT(call(status_command, {"status", flag}).out, HasSubstr("Examples:"));
  }
}

TEST_F(Commands, AWrongConfigIsRefusedBeforeAnythingStarts) {
  const std::string toml = (folder / "a.toml").string();
  ASSERT_TRUE(publish_file(posix_file_system(), toml, "[training]\nstepz = 3\n"));
  for (auto* command : {train_command, launch_command}) {
    EXPECT_EQ(call(command, {"train"}).status, 64);
    EXPECT_EQ(call(command, {"train", (folder / "none.toml").string()}).status, 64);
    EXPECT_EQ(call(command, {"train", toml, "another"}).status, 64);
    const Outcome key = call(command, {"train", toml});
    EXPECT_EQ(key.status, 64);
    EXPECT_THAT(key.err, HasSubstr("stepz"));
    EXPECT_EQ(call(command, {"train", "--no-such-flag", "3", toml}).status, 64);
  }
}

// What it prints is a config file: run again, it says the same.
TEST_F(Commands, ADryRunStartsNothingAndPrintsTheWholeConfig) {
  const std::string toml = (folder / "a.toml").string();
  const std::string results = (folder / "results").string();
  const std::string tokens = (folder / "tokens.bin").string();
  ASSERT_TRUE(publish_file(posix_file_system(), tokens, std::string(4096, '\1')));
  ASSERT_TRUE(publish_file(posix_file_system(), toml,
                           text("[data]\nkind = \"nanogpt\"\npath = \"", folder.string(),
                                "\"\n[model]\nvocab_size = 300\n")));
  const std::vector<std::string> words{"train",     toml,
                                       "--dry-run", "--nproc-per-node",
                                       "2",         "--job.dump_folder",
                                       results,     "--training.seq_len=64"};
  ASSERT_TRUE(posix_file_system().rename(tokens, folder / "train.bin"));
  for (auto* command : {train_command, launch_command}) {
    const Outcome dry = call(command, words);
    ASSERT_EQ(dry.status, 0) << dry.err;
    EXPECT_THAT(dry.out, HasSubstr("\n# ranks: 2 on this machine;"));
    EXPECT_THAT(dry.out, HasSubstr("vocabulary 300\n"));
    EXPECT_THAT(dry.out, HasSubstr("\n# from: step 0: random weights\n# to: " + results + "\n"));
    EXPECT_THAT(dry.out, HasSubstr("\nseq_len = 64\n"));
    const std::string whole = (folder / "whole.toml").string();
    ASSERT_TRUE(publish_file(posix_file_system(), whole, dry.out));
    EXPECT_EQ(call(command, {"train", whole, "--dry-run"}).out, dry.out);
  }
  std::vector<std::string> passes = words;
  passes.push_back("--training.epochs=3");
  const Outcome dry = call(train_command, passes);  // of 31 samples, 8 a step
  EXPECT_THAT(dry.out, HasSubstr("; 12 steps\n")) << dry.err;
  EXPECT_THAT(dry.out, HasSubstr("\nsteps = 12\nepochs = 0\n"));
  EXPECT_FALSE(posix_file_system().exists(results));
  const Outcome wrong =
      call(train_command, {"train", toml, "--dry-run", "--training.seq_len=99999"});
  EXPECT_EQ(wrong.status, 64);
  EXPECT_EQ(wrong.out, "");
}

TEST_F(Commands, AWrongRendezvousIsNamed) {
  const std::string toml = (folder / "a.toml").string();
  ASSERT_TRUE(publish_file(posix_file_system(), toml, "[training]\nsteps = 3\n"));
  const Outcome refused =
      call(launch_command, {"launch", toml, "--nnodes", "2", "--rdzv-endpoint=localhost"});
  EXPECT_EQ(refused.status, 64);
  EXPECT_THAT(refused.err, HasSubstr("--rdzv-endpoint"));
  EXPECT_THAT(refused.err, HasSubstr("\"localhost\" is not HOST:PORT"));
}

// Who waits to write into the pipe is not waited for.
TEST_F(Commands, AConfigThatCanBeReadOnceIsRefusedWhereItIsReadAgain) {
  const std::string pipe = (folder / "pipe").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const auto& command : {launch_command, train_command}) {
    const Outcome refused = call(command, {"launch", pipe});
    EXPECT_EQ(refused.status, 64);
    EXPECT_THAT(refused.err, HasSubstr("is no file: whoever resumes the run reads"));
  }
}

TEST_F(Commands, StatusIsATableForAwk) {
  EXPECT_EQ(call(status_command, {"status"}).status, 64);
  EXPECT_EQ(call(status_command, {"status", folder.string()}).status, 64);
  launcher::Membership membership;
  membership.generation = 2;
  membership.world_size = 2;
  membership.agent_pid = ::getpid();
  membership.state = "running";
  auto page = ProgressPage::open(folder / "page_0");
  ASSERT_TRUE(page);
  (*page)->set_phase(42, Phase::kStep);
  (*page)->set_save_phase(SavePhase::kWriting);
  (*page)->set_committed_step(40);
  (*page)->set_snapshot_step(41);
  membership.workers = {{0, ::getpid(), folder / "page_0", {}}, {1, 999999999, "/none", {}}};
  ASSERT_TRUE(
      launcher::publish_membership(posix_file_system(), folder / "workers.json", membership));
  const Outcome table = call(status_command, {"status", folder.string()});
  EXPECT_EQ(table.status, 0);
  const auto lines = split(table.out, '\n');
  ASSERT_GE(lines.size(), 4u);
  EXPECT_THAT(lines[0], HasSubstr("generation 2  world_size 2  state running"));
  std::istringstream rank0(lines[2]), rank1(lines[3]);
  std::string rank, pid, step, phase, save, committed, in_memory;
  rank0 >> rank >> pid >> step >> phase >> save >> committed >> in_memory;
  EXPECT_EQ(text(rank, pid, step, phase, save, committed, in_memory),
            text(0, ::getpid(), 42, "step", "writing", 40, 41));
  rank1 >> rank >> pid >> step >> phase;
  EXPECT_EQ(text(rank, pid, phase), "1999999999gone");
  EXPECT_FALSE(posix_file_system().exists("/none"));

  const auto json =
      nlohmann::json::parse(call(status_command, {"status", "--json", folder.string()}).out);
  EXPECT_EQ(json["state"], "running");
  EXPECT_EQ(json["workers"][0]["step"], 42);
  EXPECT_EQ(json["workers"][0]["snapshot_step"], 41);
  EXPECT_EQ(json["workers"][0]["alive"], true);
  EXPECT_EQ(json["workers"][1]["alive"], false);

  membership.agent_pid = 999999999;
  ASSERT_TRUE(
      launcher::publish_membership(posix_file_system(), folder / "workers.json", membership));
  const std::string gone = call(status_command, {"status", folder.string()}).out;
  EXPECT_THAT(gone, HasSubstr("agent_gone"));
  EXPECT_THAT(gone, HasSubstr("run the same command again to resume"));
}

}  // namespace
}  // namespace lockstep::cli
