// The words of `lockstep submit`, and the script that comes out.
#include "launcher/slurm/batch_script.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/slurm/job.h"

namespace lockstep::launcher::slurm {
namespace {

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

TEST(BatchScript, SaysWhatKeepsAJobAlive) {
  const std::string out = batch_script_text(script_of({"a.toml", "--nodes=4", "--x", "it's"}));
  EXPECT_TRUE(out.starts_with("#!/bin/bash\n"));
  for (const char* line :
       {"--nodes=4", "--no-requeue", "--no-kill", "--open-mode=append", "--signal=USR1@120",
        "--ntasks-per-node=1", "--job-name=demo", "--output=logs/demo/%x-%j.out"})
    EXPECT_THAT(out, HasSubstr(std::string("#SBATCH ") + line + "\n"));
  EXPECT_THAT(out, HasSubstr("LOCKSTEP=\"${LOCKSTEP:-/opt/lockstep}\"\nMIN_NODES=1\n"));
  EXPECT_THAT(out, HasSubstr("functions\n\nlaunch a.toml --x 'it'\\''s'\n"));
  EXPECT_LT(out.find("#SBATCH"), out.find("functions"));
  EXPECT_EQ(batch_script_path("demo"), "logs/demo/demo.sbatch");
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
