// The words of `lockstep submit`, and the script that comes out.
#include "launcher/slurm/batch_script.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/file_system.h"
#include "base/text.h"
#include "launcher/host/pipe.h"
#include "launcher/slurm/job.h"
#include "tests/support/temp_dir.h"

namespace lockstep::launcher::slurm {
namespace {

namespace fs = std::filesystem;

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::Pair;

BatchScript script_of(const std::vector<std::string>& arguments) {
  auto words = split_words(arguments);
  EXPECT_TRUE(words);
  return {"demo", "/opt/lockstep", "functions\n", std::move(words).value()};
}

TEST(BatchScript, WordsGoToSbatchOrToTheLaunch) {
  const auto words =
      split_words({"a.toml", "--nodes", "4", "--training.steps", "5", "--time=1:00", "--exclusive",
                   "--dry-run", "--min-nodes", "2", "--launcher.requeue", "never"});
  ASSERT_TRUE(words);
  EXPECT_THAT(words.value().sbatch,
              ElementsAre(Pair("nodes", "4"), Pair("time", "1:00"), Pair("exclusive", "")));
  EXPECT_THAT(words.value().launch,
              ElementsAre("a.toml", "--training.steps", "5", "--launcher.requeue", "never"));
  EXPECT_EQ(words.value().min_nodes, 2);
  EXPECT_TRUE(words.value().dry_run);
  EXPECT_FALSE(split_words({"a.toml", "--nodes"}));
  EXPECT_FALSE(split_words({"a.toml", "--min-nodes", "none"}));
  EXPECT_FALSE(split_words({"a.toml", "--min-nodes=0"}));
  EXPECT_FALSE(split_words({"a.toml", "--min-nodes", "2"}));
  EXPECT_FALSE(split_words({"a.toml", "--min-nodes", "3", "--nodes", "2"}));
  EXPECT_TRUE(split_words({"a.toml", "--min-nodes", "3", "--nodes", "2-4"}));
}

TEST(BatchScript, StagedProgramsArePackedInTheFolderOfSubmission) {
  EXPECT_THAT(batch_script_text(script_of({"a.toml", "--stage", "--nodes=2"})),
              HasSubstr("\n[[ -n ${LOCKSTEP_STAGE:-} ]] || LOCKSTEP_STAGE=packs\n"));
  EXPECT_THAT(batch_script_text(script_of({"a.toml"})), Not(HasSubstr("LOCKSTEP_STAGE=")));
  EXPECT_FALSE(split_words({"a.toml", "--stage", "--container-image=i"}));
}

TEST(BatchScript, ShortOptionsAreSbatchs) {
  const auto words =
      split_words({"a.toml", "-N", "4", "-Aproject", "-p", "normal", "-t1:00", "--uenv=prg/24:v1"});
  ASSERT_TRUE(words);
  EXPECT_THAT(words.value().sbatch, ElementsAre(Pair("nodes", "4"), Pair("account", "project"),
                                                Pair("partition", "normal"), Pair("time", "1:00"),
                                                Pair("uenv", "prg/24:v1")));
  EXPECT_THAT(words.value().launch, ElementsAre("a.toml"));
  EXPECT_FALSE(split_words({"a.toml", "-N"}));
}

TEST(BatchScript, GpusOfAllNodesAreSpreadOverThem) {
  const auto spread = [](const std::vector<std::string>& arguments) {
    const auto words = split_words(arguments);
    return words ? words.value().sbatch_value("gpus-per-node", "none") : words.error().message;
  };
  EXPECT_EQ(spread({"--gpus", "8", "-N4"}), "2");
  EXPECT_EQ(spread({"--gpus=a100:8", "--nodes=2"}), "a100:4");
  EXPECT_EQ(spread({"--gpus", "3"}), "3");
  for (const std::vector<std::string>& uneven : {std::vector<std::string>{"--gpus", "6", "-N4"},
                                                 {"--gpus=8", "-N", "2-4"},
                                                 {"--gpus=8", "--gpus-per-node=4", "-N2"},
                                                 {"--gpus=a:2,b:2", "-N2"}})
    EXPECT_THAT(spread(uneven), HasSubstr("give --gpus-per-node alone"));
  const auto asked = [](const std::string& word) {
    return split_words({word}).value().gpus_per_node();
  };
  EXPECT_EQ(asked("--gpus-per-node=a100:4"), 4);
  EXPECT_EQ(asked("--gres=gpu:a100:2,lscratch:10"), 2);
  EXPECT_EQ(asked("--exclusive"), 0);
}

TEST(BatchScript, AContainerIsForTheStepsAlone) {
  const std::string out =
      batch_script_text(script_of({"a.toml", "--container-image", "site/lockstep:1",
                                   "--container-mounts=/a b:/a b", "--environment", "lockstep"}));
  EXPECT_THAT(out, HasSubstr("LOCKSTEP_CONTAINER_IMAGE=site/lockstep:1\n"
                             "LOCKSTEP_CONTAINER_MOUNTS='/a b:/a b'\n"
                             "LOCKSTEP_ENVIRONMENT=lockstep\n"));
  EXPECT_LT(out.find("LOCKSTEP_ENVIRONMENT="), out.find("functions"));
  for (const char* option : {"#SBATCH --container", "#SBATCH --environment"})
    EXPECT_THAT(out, Not(HasSubstr(option)));
}

TEST(BatchScript, SaysWhatKeepsAJobAlive) {
  const std::string out = batch_script_text(script_of({"a.toml", "--nodes=4", "--x", "it's"}));
  EXPECT_TRUE(out.starts_with("#!/bin/bash\n"));
  for (const char* line :
       {"--nodes=4", "--no-requeue", "--no-kill", "--open-mode=append", "--signal=USR1@120",
        "--ntasks-per-node=1", "--job-name=demo", "--output=logs/demo/%x-%j.out"})
    EXPECT_THAT(out, HasSubstr(std::string("#SBATCH ") + line + "\n"));
  EXPECT_THAT(out, HasSubstr("|| LOCKSTEP=/opt/lockstep\nMIN_NODES=1\n"));
  EXPECT_THAT(out, HasSubstr("functions\n\nlaunch a.toml --x 'it'\\''s'\n"));
  EXPECT_LT(out.find("#SBATCH"), out.find("functions"));
  EXPECT_EQ(batch_script_path("demo"), "logs/demo/demo.sbatch");
}

// Run by a shell, with a launch that says what it was given and ends with 71.
TEST(BatchScript, ATaskOfAnArrayTrainsItsRowAndKeepsItsStatus) {
  const test_support::TempDir folder;
  BatchScript script = script_of({"--array=0-1"});
  script.rows = {(folder / "a b").string(), (folder / "c").string()};
  script.functions = "launch() { echo \"trains $*\"; echo oops >&2; return 71; }";
  for (const char* row : {"a b", "c"}) ASSERT_TRUE(fs::create_directory(folder / row));
  const std::string contents = batch_script_text(script);
  EXPECT_THAT(contents, HasSubstr("#SBATCH --array=0-1\n"));
  ASSERT_TRUE(publish_file(posix_file_system(), folder / "a b/exit_status", "70\n").ok());
  const auto task = [&](int number) {
    const std::string id = text("SLURM_ARRAY_TASK_ID=", number, "\n");
    return run_program("/bin/bash", {"-c", id + contents}, "", 10'000).value().exit_status;
  };
  const auto read = [&](const char* name) {
    return read_file(posix_file_system(), folder / name).value();
  };
  EXPECT_EQ(task(0), 71);
  EXPECT_EQ(read("a b/exit_status"), "71\n");
  EXPECT_EQ(read("a b/console.log"),
            text("trains ", (folder / "a b/config.toml").string(), "\noops\n"));
  EXPECT_FALSE(fs::exists(folder / "c/exit_status"));
  EXPECT_EQ(task(1), 71);
  EXPECT_EQ(read("c/exit_status"), "71\n");
}

TEST(BatchScript, TheProgramsPathIsOneWordWhateverItHolds) {
  BatchScript script = script_of({"a.toml"});
  script.program = "/opt/a b}\"$(touch pwned)`id`'/lockstep";
  script.functions = "printf %s \"$LOCKSTEP\"; exit";
  const std::string contents = batch_script_text(script);
  const auto run = [&](const std::string& first) {
    return run_program("/bin/bash", {"-c", first + contents}, "", 10'000).value().standard_output;
  };
  EXPECT_EQ(run("unset LOCKSTEP\n"), script.program.string());
  EXPECT_EQ(run("LOCKSTEP='its own'\n"), "its own");
}

TEST(BatchScript, TheUsersWordReplacesOurs) {
  const std::string out = batch_script_text(
      script_of({"a.toml", "--requeue", "--signal", "USR1@60", "--output=o", "--job-name=j"}));
  EXPECT_THAT(out, HasSubstr("#SBATCH --requeue\n"));
  for (const char* ours : {"--no-requeue", "USR1@120", "logs/", "--job-name=demo"})
    EXPECT_THAT(out, Not(HasSubstr(ours))) << ours;
}

TEST(BatchScript, ValuesAreQuotedAsSbatchReadsThem) {
  const std::string out = batch_script_text(script_of(
      {"a.toml", "--comment", "nightly run", "--job-name=run#7", "--qos=", "--no-kill=off",
       "--constraint", R"(a"b\c)", "--output", "it's", "--exclude=node[1-3],x"}));
  for (const char* line :
       {R"(--comment="nightly run")", R"(--job-name="run#7")", "--qos=", "--no-kill=off",
        R"(--constraint="a\"b\\c")", R"(--output="it's")", "--exclude=node[1-3],x"})
    EXPECT_THAT(out, HasSubstr(std::string("#SBATCH ") + line + "\n")) << line;
  EXPECT_FALSE(split_words({"a.toml", "--comment", "two\nlines"}));
  EXPECT_FALSE(split_words({"a.toml", "--exclusive=a\nb"}));
}

TEST(BatchScript, AValueThatLooksLikeAnOptionIsNone) {
  const std::string out = batch_script_text(
      script_of({"a.toml", "--no-kill=off", "--comment", R"(not \ " --no-kill )"}));
  EXPECT_EQ(no_kill_of_script(out), false);
  EXPECT_EQ(no_kill_of_script(batch_script_text(script_of({"a.toml"}))), true);
}

}  // namespace
}  // namespace lockstep::launcher::slurm
