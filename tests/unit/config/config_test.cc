#include "config/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "base/file_system.h"
#include "base/json.h"
#include "config/config_field.h"
#include "config/config_words.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/config/config_from.h"

namespace lockstep {
namespace {

using test_support::TempDir;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TEST(ConfigToml, FillsEveryType) {
  TempDir dir;
  const auto parsed = from_toml(dir, R"(
[job]
name = "demo"
[optimizer]
lr = 1          # an integer where a number is wanted
weight-decay = 0.5
[model]
tie_word_embeddings = true
[training]
steps = 1_000
[launcher]
nproc_per_node = [2, 3, 1]
)");
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  const Config& config = parsed.value().config;
  EXPECT_EQ(config.job.name, "demo");
  EXPECT_EQ(config.optimizer.lr, 1.0);
  EXPECT_EQ(config.optimizer.weight_decay, 0.5);
  EXPECT_TRUE(config.model.tie_word_embeddings);
  EXPECT_EQ(config.training.steps, 1000);
  EXPECT_THAT(config.launcher.nproc_per_node, ElementsAre(2, 3, 1));
  EXPECT_EQ(config.training.seq_len, Config{}.training.seq_len);
}

TEST(ConfigToml, FlagsWinOverTheFile) {
  TempDir dir;
  const auto parsed =
      from_toml(dir, "[training]\nsteps = 5\nseed = 7\n", {"--training.steps", "9"});
  EXPECT_EQ(parsed.value().config.training.steps, 9);
  EXPECT_EQ(parsed.value().config.training.seed, 7);
}

TEST(ConfigToml, OneProcessCountNeedsNoList) {
  TempDir dir;
  const auto parsed = from_toml(dir, "[launcher]\nnproc_per_node = 4\n");
  EXPECT_THAT(parsed.value().config.launcher.nproc_per_node, ElementsAre(4));
}

TEST(ConfigToml, UnknownNamesSuggestTheNearest) {
  EXPECT_THAT(toml_error("[training]\nseed = 1\nstepz = 5\n"),
              HasSubstr("run.toml:3: unknown key training.stepz; did you mean training.steps?"));
  EXPECT_THAT(toml_error("[trainig]\nsteps = 5\n"),
              HasSubstr("run.toml:1: unknown section [trainig]; did you mean training?"));
  EXPECT_THAT(toml_error("[model]\nseq_len = 5\n"),
              HasSubstr("unknown key model.seq_len; did you mean training.seq_len?"));
  EXPECT_THAT(toml_error("seq_len = 5\n"),
              HasSubstr("outside of any [section]; did you mean training.seq_len?"));
  EXPECT_THAT(toml_error("[training.extra]\nx = 5\n"), HasSubstr("unknown key training.extra"));
  EXPECT_THAT(toml_error("[qqqqqqqq]\n"), Not(HasSubstr("did you mean")));
}

// In the order of the lines, not of the names; then what is wrong with the flags.
TEST(ConfigToml, AllThatIsWrongIsSaidAtOnceInTheOrderOfTheFile) {
  TempDir dir;
  const auto parsed = from_toml(dir,
                                "[training]\n"
                                "stepz = 5\n"
                                "nan_policy = \"never\"\n"
                                "local_batch_size = \"2\"\n"
                                "[modle]\n"
                                "dim = 3\n"
                                "[checkpoint]\n"
                                "codec = \"lzma\"\n",
                                {"--learnin_rate", "3", "--checkpoint.codec", "none", "--no-such"});
  ASSERT_FALSE(parsed.ok());
  EXPECT_EQ(parsed.error().code, Code::kConfig);
  std::vector<std::string> begins;
  const std::string file = (dir / "run.toml").string();
  for (std::string line : split(parsed.error().message, '\n')) {
    if (line.starts_with(file)) line = line.substr(file.size());
    begins.push_back(line.substr(0, line.find_last_of(' ', 26)));
  }
  EXPECT_THAT(begins, ElementsAre(":2: unknown key",
                                  ":3: training.nan_policy =", ":4:", ":5: unknown section",
                                  "--learnin_rate: unknown", "--no-such: unknown"));
}

// Torchtitan's keys have names that are near to others of ours.
TEST(ConfigToml, KeysOfOtherToolsAreNamedWithWhatTheyBecome) {
  const std::string said = toml_error(
      "[training]\n"
      "dataset = \"c4\"\n"
      "[parallelism]\n"
      "data_parallel_replicate_degree = 2\n"
      "data_parallel_shard_degree = -1\n"
      "tensor_parallel_degree = 2\n"
      "[validation]\n"
      "enable = false\n"
      "[compile]\n"
      "enable = true\n"
      "components = [\"model\"]\n"
      "[quantize.linear.float8]\n"
      "emulate = true\n");
  for (const char* line :
       {"run.toml:2: training.dataset: this is a key of torchtitan: `lockstep prepare` makes",
        "run.toml:4: parallelism.data_parallel_replicate_degree: this is a key of torchtitan: here "
        "it is parallelism.strategy (",
        "run.toml:5: parallelism.data_parallel_shard_degree = -1: must be 0 to 65536; torchtitan's",
        "run.toml:6: parallelism.tensor_parallel_degree: this is a key of torchtitan: models are",
        "run.toml:8: validation.enable: this is a key of torchtitan: here it is validation.freq",
        "run.toml:10: compile.enable: this is a key of torchtitan: there is no compiler",
        "run.toml:11: compile.components: this is a key", "run.toml:12: quantize.linear: this is",
        "run.toml` writes it with the keys of lockstep; docs/MIGRATING.md"})
    EXPECT_THAT(said, HasSubstr(line));
  EXPECT_THAT(said, Not(HasSubstr("did you mean")));
  EXPECT_THAT(toml_error("micro_batch_size = 2\n"),
              HasSubstr("micro_batch_size: this is a key of axolotl: here it is "
                        "training.local_batch_size"));
  EXPECT_THAT(flag_error({"--compile.enable"}), HasSubstr("a key of torchtitan: there is no"));
  EXPECT_THAT(flag_error({"--tensor_parallel_degree", "2"}), HasSubstr("a key of torchtitan"));
  EXPECT_THAT(flag_error({"--fsdp_sharding_strategy", "FULL_SHARD"}),
              HasSubstr("a key of accelerate: here it is parallelism.strategy"));
}

// A short name stands for one key, so it says which is meant in any section.
TEST(ConfigToml, AShortNameInASection_IsSuggestedAsItsKey) {
  EXPECT_THAT(toml_error("[training]\nlearning_rate = 1e-3\n"),
              HasSubstr("unknown key training.learning_rate; did you mean optimizer.lr?"));
  EXPECT_THAT(flag_error({"--training.learning-rate", "1"}), HasSubstr("optimizer.lr"));
}

TEST(ConfigToml, WhatIsOutOfLimitsIsSaidWithItsLine) {
  TempDir dir;
  const auto parsed =
      from_toml(dir, "[training]\nseq_len = 0\nsteps = 0\n", {"--training.steps", "-1"});
  ASSERT_TRUE(parsed.ok());
  const std::string said = validate(parsed.value().config, parsed.value().places).error().message;
  EXPECT_THAT(said, HasSubstr("run.toml:2: training.seq_len = 0: must be"));
  EXPECT_THAT(said, testing::StartsWith("training.steps = -1: must be"));
}

TEST(ConfigToml, YamlIsNamedWithTheCommandThatConvertsIt) {
  TempDir dir;
  std::ofstream(dir / "fsdp.yaml") << "mixed_precision: bf16\n";
  EXPECT_THAT(parse_config(dir / "fsdp.yaml", {}).error().message,
              HasSubstr("a config is TOML: `lockstep convert-config"));
}

TEST(ConfigToml, AKeyThatIsGoneNamesWhatTakesItsPlace) {
  EXPECT_THAT(toml_error("[checkpoint]\nmax_failures = 3\n"),
              HasSubstr("run.toml:2: checkpoint.max_failures: this key was removed; "
                        "use checkpoint.outage_minutes"));
  EXPECT_THAT(
      parse_config("", {"--checkpoint.max-failures=3"}).error().message,
      HasSubstr("--checkpoint.max-failures: this key was removed; use checkpoint.outage_minutes"));
  for (const ConfigField& field : config_fields()) EXPECT_EQ(retired_key(field.name()), nullptr);
}

TEST(ConfigToml, StepsAndEpochsAreNotGivenTogether) {
  EXPECT_THAT(toml_error("[training]\nsteps = 100\nepochs = 2\n"),
              HasSubstr("run.toml:3: training.epochs = 2 sets the number of steps, and "
                        "training.steps = 100 in line 2 sets it too; give only one of them"));
  TempDir dir;
  const char* const epochs = "[training]\nepochs = 2\n";
  const auto both = from_toml(dir, epochs, {"--training.steps=7"});
  EXPECT_THAT(both.error().message, HasSubstr("run.toml:2: training.epochs = 2"));
  EXPECT_THAT(both.error().message, HasSubstr("training.steps = 7 of the command line"));
  EXPECT_TRUE(from_toml(dir, epochs, {}).ok());
  EXPECT_TRUE(from_toml(dir, epochs, {"--training.steps=7", "--training.epochs=0"}).ok());
  const auto later = from_toml(dir, "[training]\nsteps = 7\n", {"--training.epochs=2"});
  ASSERT_TRUE(later.ok()) << later.error().message;
  EXPECT_EQ(later.value().config.training.epochs, 2);
  EXPECT_THAT(parse_config("", {"--training.epochs=2", "--training.steps=7"}).error().message,
              HasSubstr("training.steps = 7 of the command line sets it too"));
}

TEST(ConfigToml, WrongTypesNameBoth) {
  EXPECT_THAT(toml_error("[training]\nsteps = \"100\"\n"),
              HasSubstr(":2: training.steps is of type string, but it must be of type integer"));
  EXPECT_THAT(
      toml_error("[training]\nsteps = 100.0\n"),
      HasSubstr("training.steps is of type floating-point, but it must be of type integer"));
  EXPECT_THAT(toml_error("[checkpoint]\nenable = 1\n"), HasSubstr("must be of type boolean"));
  EXPECT_THAT(toml_error("[job]\nname = 1\n"), HasSubstr("must be of type string"));
  EXPECT_THAT(toml_error("[optimizer]\nlr = \"1e-3\"\n"), HasSubstr("must be of type number"));
  EXPECT_THAT(toml_error("[launcher]\nnproc_per_node = [1, \"2\"]\n"),
              HasSubstr("array of other values, but it must be of type list of integers"));
  EXPECT_THAT(toml_error("training = 3\n"), HasSubstr("it must be a section: [training]"));
  EXPECT_THAT(toml_error("[[training]]\nsteps = 3\n"), HasSubstr("must be a section"));
}

TEST(ConfigToml, BadFilesSayWhere) {
  EXPECT_THAT(toml_error("[training]\nsteps = = 3\n"), HasSubstr("run.toml:2: "));
  EXPECT_THAT(toml_error("[job]\nname = \"\xff\xfe\"\n"), HasSubstr("run.toml:2: "));
  const auto missing = parse_config("/nonexistent/run.toml", {});
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, Code::kNotFound);
  EXPECT_THAT(missing.error().message, HasSubstr("/nonexistent/run.toml"));
}

TEST(ConfigToml, APipeIsReadToItsEnd) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const std::string contents = "[training]\nsteps = 7\n";
  ASSERT_EQ(::write(ends[1], contents.data(), contents.size()), std::ssize(contents));
  ::close(ends[1]);
  const auto parsed = parse_config("/dev/fd/" + std::to_string(ends[0]), {});
  ::close(ends[0]);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(parsed.value().config.training.steps, 7);
}

TEST(ConfigToml, AFileWithoutAnEndIsRefused) {
  const auto parsed = parse_config("/dev/zero", {});
  ASSERT_FALSE(parsed.ok());
  EXPECT_EQ(parsed.error().code, Code::kConfig);
  EXPECT_THAT(parsed.error().message, HasSubstr("/dev/zero: longer than 16777216 bytes"));
}

TEST(ConfigFlags, EveryFormOfAValue) {
  EXPECT_EQ(from_flags({"--training.steps", "7"}).training.steps, 7);
  EXPECT_EQ(from_flags({"--training.steps=7"}).training.steps, 7);
  EXPECT_EQ(from_flags({"--training.seq-len", "7"}).training.seq_len, 7);
  EXPECT_EQ(from_flags({"--optimizer.lr", "1e-3"}).optimizer.lr, 1e-3);
  EXPECT_EQ(from_flags({"--optimizer.lr", "-1"}).optimizer.lr, -1);
  EXPECT_EQ(from_flags({"--job.description=a=b --c"}).job.description, "a=b --c");
  EXPECT_EQ(from_flags({"--job.description="}).job.description, "");
  EXPECT_THAT(from_flags({"--launcher.nproc_per_node", "2,3,1"}).launcher.nproc_per_node,
              ElementsAre(2, 3, 1));
  EXPECT_THAT(from_flags({"--launcher.nproc_per_node=[4, 2]"}).launcher.nproc_per_node,
              ElementsAre(4, 2));
  EXPECT_EQ(from_flags({"--training.steps", "7", "--training.steps", "8"}).training.steps, 8);
}

TEST(ConfigFlags, Booleans) {
  EXPECT_TRUE(from_flags({"--model.tie_word_embeddings"}).model.tie_word_embeddings);
  EXPECT_FALSE(from_flags({"--checkpoint.no_enable"}).checkpoint.enable);
  EXPECT_FALSE(from_flags({"--checkpoint.no-enable"}).checkpoint.enable);
  EXPECT_FALSE(from_flags({"--checkpoint.enable=false"}).checkpoint.enable);
  EXPECT_FALSE(from_flags({"--checkpoint.enable", "false"}).checkpoint.enable);
  EXPECT_TRUE(from_flags({"--checkpoint.enable=1"}).checkpoint.enable);
  const auto parsed = parse_config("", {"--model.tie_word_embeddings", "demo.toml"});
  EXPECT_TRUE(parsed.value().config.model.tie_word_embeddings);
  EXPECT_THAT(parsed.value().positional, ElementsAre("demo.toml"));
  EXPECT_THAT(flag_error({"--checkpoint.no_enable=true"}), HasSubstr("takes no value"));
  for (const char* word : {"False", "no", "0"})
    EXPECT_THAT(flag_error({"--checkpoint.enable", word, "demo.toml"}),
                HasSubstr("--checkpoint.enable=false; --checkpoint.no_enable also means false"));
  EXPECT_THAT(flag_error({"--gradient_checkpointing", "False"}),
              HasSubstr("--no_gradient_checkpointing"));
  EXPECT_THAT(flag_error({"--checkpoint.enable=maybe"}), HasSubstr("must be of type boolean"));
}

TEST(ConfigFlags, PositionalWords) {
  const auto parsed = parse_config("", {"a.toml", "--training.steps", "3", "-h", "--", "--raw"});
  ASSERT_TRUE(parsed.ok());
  EXPECT_THAT(parsed.value().positional, ElementsAre("a.toml", "-h", "--raw"));
}

TEST(ConfigFlags, Aliases) {
  EXPECT_EQ(from_flags({"--data_parallel", "fsdp"}).parallelism.strategy,
            ShardingStrategy::kFullShard);
  EXPECT_EQ(from_flags({"--data-parallel=ddp"}).parallelism.strategy, ShardingStrategy::kDdp);
  EXPECT_EQ(from_flags({"--parallelism.strategy", "fsdp"}).parallelism.strategy,
            ShardingStrategy::kFullShard);
  EXPECT_EQ(from_flags({"--batch_size_per_device", "3"}).training.local_batch_size, 3);
  EXPECT_EQ(from_flags({"--batch_size", "3"}).training.local_batch_size, 3);
  EXPECT_EQ(from_flags({"--gradient_accumulation_steps", "8"}).slots(), 8);
  EXPECT_EQ(from_flags({"--set-seed", "5"}).training.seed, 5);
  EXPECT_THAT(from_flags({"--nproc-per-node", "2,3"}).launcher.nproc_per_node, ElementsAre(2, 3));
  EXPECT_EQ(from_flags({"--max-restarts", "9"}).launcher.max_restarts, 9);
  EXPECT_FALSE(from_flags({"--forward_prefetch=false"}).parallelism.forward_prefetch);
  EXPECT_FALSE(from_flags({"--no-forward-prefetch"}).parallelism.forward_prefetch);
  EXPECT_EQ(from_flags({"--data_parallel", "hybrid_shard"}).parallelism.strategy,
            ShardingStrategy::kHybrid);
  EXPECT_TRUE(from_flags({"--cpu-offload"}).training.enable_cpu_offload);
  EXPECT_FALSE(from_flags({"--no-fused-attention"}).model.fused_attention);
  EXPECT_EQ(from_flags({"--learning_rate", "0.5"}).optimizer.lr, 0.5);
  EXPECT_THAT(flag_error({"--no_learning_rate", "0.5"}), HasSubstr("unknown option"));
}

TEST(ConfigFlags, AliasOfAWordTypedAsABoolean) {
  const auto mode = [](const std::string& flag) {
    return from_flags({flag, "--training.steps", "3"}).activation_checkpoint.mode;
  };
  EXPECT_EQ(mode("--gradient_checkpointing"), Recompute::kFull);
  EXPECT_EQ(mode("--gradient-checkpointing=true"), Recompute::kFull);
  EXPECT_EQ(mode("--gradient_checkpointing=false"), Recompute::kNone);
  EXPECT_EQ(mode("--no_gradient_checkpointing"), Recompute::kNone);
  EXPECT_EQ(mode("--gradient_checkpointing=selective"), Recompute::kSelective);
}

TEST(ConfigChoices, AWordThatIsNoneOfThemIsRefusedAndTheNearestIsNamed) {
  EXPECT_EQ(flag_error({"--parallelism.strategy", "full_shrad"}),
            "parallelism.strategy = full_shrad: must be one of: single, ddp, full_shard, "
            "shard_grad_op, hybrid; did you mean full_shard?");
  EXPECT_EQ(flag_error({"--checkpoint.codec="}),
            "checkpoint.codec = \"\": must be one of: zstd, none, gzip");
  EXPECT_EQ(flag_error({"--debug.break_rule", "2"}),
            "debug.break_rule = 2: must be one of: \"\", 1, 3, 4, 5, 6");
}

TEST(ConfigChoices, TheLastWordOfAKeyCounts) {
  TempDir dir;
  const std::string file = "[training]\nnan_policy = \"never\"\n";
  const auto mended = from_toml(dir, file, {"--training.nan_policy", "skip"});
  ASSERT_TRUE(mended.ok()) << mended.error().message;
  EXPECT_EQ(mended.value().config.training.nan_policy, NanPolicy::kSkip);
  EXPECT_FALSE(from_toml(dir, file).ok());
  EXPECT_FALSE(parse_config("", {"--training.nan_policy=skip", "--training.nan_policy=x"}).ok());
}

// A word for every value, and each word reads back as the value that is written with it.
TEST(ConfigChoices, EveryWordIsReadAsItIsWritten) {
  for (const ConfigField& field : config_fields()) {
    const std::string limits = limits_text(field);
    if (!limits.starts_with("one of: ")) continue;
    size_t words = 0;
    for (std::string word : split(limits.substr(8), ',')) {
      word.erase(0, word.find_first_not_of(' '));
      if (word == "\"\"") word.clear();
      const Config config = from_flags({text("--", field.name(), "=", word)});
      EXPECT_EQ(value_text(config, field), word);
      EXPECT_THAT(config_json(config), HasSubstr(text("\"", field.key, "\": \"", word, "\"")));
      ++words;
    }
    EXPECT_GE(words, 1u) << field.name();
  }
}

TEST(ConfigFlags, EveryAliasLeadsToAKey) {
  for (const ConfigAlias& alias : config_aliases()) {
    const auto parts = split(alias.name, '.');
    EXPECT_NE(find_config_field(parts.at(0), parts.at(1)), nullptr) << alias.alias;
  }
}

TEST(ConfigFlags, Mistakes) {
  EXPECT_THAT(flag_error({"--training.stepz", "3"}),
              HasSubstr("--training.stepz: unknown option; did you mean --training.steps?"));
  EXPECT_THAT(flag_error({"--steps", "3"}), HasSubstr("did you mean --training.steps?"));
  EXPECT_THAT(flag_error({"--nproc", "3"}), HasSubstr("did you mean --launcher.nproc_per_node?"));
  EXPECT_THAT(flag_error({"--data", "3"}), Not(HasSubstr("did you mean")));
  EXPECT_THAT(flag_error({"--learnin_rate", "3"}), HasSubstr("did you mean --learning_rate?"));
  EXPECT_THAT(flag_error({"--trainng.steps", "3"}), HasSubstr("did you mean --training.steps?"));
  EXPECT_THAT(flag_error({"--training.steps"}), HasSubstr("needs a value of type integer"));
  EXPECT_THAT(flag_error({"--training.steps", "--set-seed"}), HasSubstr("needs a value"));
  EXPECT_THAT(flag_error({"--training.steps", "1e3"}),
              HasSubstr("\"1e3\" is not of the right type; training.steps must be of type "
                        "integer"));
  EXPECT_THAT(flag_error({"--training.steps", "99999999999999999999"}), HasSubstr("integer"));
  EXPECT_THAT(flag_error({"--optimizer.lr", "fast"}), HasSubstr("must be of type number"));
  EXPECT_THAT(flag_error({"--nproc-per-node", "2,x"}), HasSubstr("list of integers"));
  EXPECT_THAT(flag_error({"--training.no_steps"}), HasSubstr("unknown option"));
  EXPECT_THAT(
      flag_error({"--rdzv-backend=c10d"}),
      HasSubstr(
          "--rdzv-backend: lockstep does not have this flag of torchrun's: there is only one"));
}

// A short word is near to every other short word.
TEST(ConfigFlags, NothingIsSuggestedThatIsNotMeant) {
  EXPECT_EQ(flag_error({"--gpus", "2"}),
            "--gpus: lockstep does not have this flag of other tools: a node has one worker for "
            "each GPU, or the number that --nproc-per-node gives");
  EXPECT_EQ(flag_error({"--hint", "nomultithread"}), "--hint: unknown option");
  EXPECT_EQ(flag_error({"--foo", "2"}), "--foo: unknown option");
  EXPECT_EQ(flag_error({"--time", "1:00:00"}),
            "--time: lockstep does not have this flag of sbatch's: `lockstep submit` passes it on");
  EXPECT_THAT(flag_error({"--setps", "3"}), HasSubstr("did you mean --training.steps?"));
}

TEST(ConfigOutput, JsonHoldsEveryKeyResolved) {
  const Config config = from_flags({"--training.global_batch_size", "12", "--job.name", "n"});
  const auto json = nlohmann::json::parse(config_json(config));
  for (const ConfigField& field : config_fields())
    EXPECT_TRUE(json.at(field.section).contains(field.key)) << field.name();
  EXPECT_EQ(json["training"]["slots"], 6);
  EXPECT_EQ(json["training"]["global_batch_size"], 12);
  EXPECT_EQ(json["lr_scheduler"]["total_steps"], 100);
  EXPECT_EQ(json["model"]["head_dim"], 32);
  EXPECT_EQ(json["model"]["ffn_dim"], 704);
  EXPECT_EQ(json["job"]["dump_folder"], "results/training/n");
  EXPECT_TRUE(json["launcher"]["nproc_per_node"].is_array());
  EXPECT_TRUE(json["optimizer"]["lr"].is_number_float());
}

TEST(ConfigOutput, TomlGivesTheSameRun) {
  const Config config = from_flags(
      {"--training.global_batch_size=12", "--job.description=a \"b\"\n\\", "--data.sources=x,y z",
       "--data.weights=3,1", "--optimizer.lr=1e-5", "--parallelism.strategy=ddp"});
  TempDir dir;
  const auto back = from_toml(dir, config_toml(config));
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(config_json(back.value().config), config_json(config));
  EXPECT_TRUE(validate(back.value().config).ok());
  EXPECT_THAT(config_toml(config), HasSubstr("\n[training]\n"));
}

TEST(ConfigOutput, WordsGiveTheSameConfigWithoutItsFile) {
  TempDir dir;
  const auto read =
      from_toml(dir,
                "[job]\ndescription = \"a \\\"b\\\"\\n -- \"\n[optimizer]\nlr = 1e-7\n"
                "[training]\nepochs = 3\n[checkpoint]\nenable = false\n[data]\n"
                "sources = [\"/a b\", \"/c,d\", \"\"]\nweights = [3, 1, 2]\npath = \"\"\n"
                "[parallelism]\nstrategy = \"ddp\"\n[launcher]\nnproc_per_node = 2\n");
  ASSERT_TRUE(read.ok()) << read.error().message;
  const Config& config = read.value().config;
  const Config back = from_flags(config_words(config));
  for (const ConfigField& field : config_fields())
    EXPECT_EQ(value_text(back, field), value_text(config, field)) << field.name();
  EXPECT_EQ(back.data.sources, config.data.sources);
  EXPECT_THAT(config_words(Config{}), ElementsAre());
}

// The command line's epochs take the place of the file's steps.
TEST(ConfigOutput, WordsOfARunOfEpochsSayNoSteps) {
  Config config = from_flags({"--training.epochs=2"});
  config.training.steps = 7;
  EXPECT_THAT(config_words(config), ElementsAre("--training.epochs=2"));
}

TEST(ConfigOutput, TomlKeepsTheLimitsOfItsKeys) {
  const Config config =
      from_flags({"--model.dim=1048576", "--model.n_heads=1", "--model.n_kv_heads=1"});
  ASSERT_TRUE(validate(config).ok());
  TempDir dir;
  const auto back = from_toml(dir, config_toml(config));
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_TRUE(validate(back.value().config).ok()) << validate(back.value().config).error().message;
}

TEST(ConfigOutput, JsonSurvivesBytesThatAreNotText) {
  const Config config = from_flags({"--job.description=\xff\xfe"});
  EXPECT_FALSE(nlohmann::json::parse(config_json(config)).is_discarded());
}

TEST(ConfigOutput, HelpNamesEveryKeyAndAlias) {
  const std::string help = config_help();
  for (const ConfigField& field : config_fields())
    EXPECT_THAT(help, HasSubstr("--" + field.name() + " "));
  for (const ConfigAlias& alias : config_aliases())
    EXPECT_THAT(help, HasSubstr(std::string("--") + alias.alias + " "));
}

}  // namespace
}  // namespace lockstep
