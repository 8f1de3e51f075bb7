// Which keys make a run another one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "config/config_field.h"
#include "tests/unit/config/config_from.h"

namespace lockstep {
namespace {

using testing::Contains;
using testing::Not;

TEST(ConfigIdentity, NeutralKeysStayOut) {
  const std::vector<std::string> before = identity_lines(Config{});
  EXPECT_TRUE(std::is_sorted(before.begin(), before.end()));
  EXPECT_EQ(identity_lines(from_flags({"--job.name",
                                       "x",
                                       "--data_parallel",
                                       "ddp",
                                       "--nproc-per-node",
                                       "4",
                                       "--checkpoint.interval",
                                       "3",
                                       "--data.path",
                                       "elsewhere",
                                       "--model.ignore_fields",
                                       "a,b",
                                       "--data.on_change",
                                       "continue",
                                       "--data.prefetch",
                                       "9",
                                       "--metrics.log_freq",
                                       "1",
                                       "--validation.freq",
                                       "5",
                                       "--forward_prefetch=false",
                                       "--comm.train_timeout_seconds",
                                       "1",
                                       "--checkpoint.memory_interval",
                                       "2",
                                       "--checkpoint.memory_folder",
                                       "elsewhere",
                                       "--checkpoint.buddy",
                                       "--backward_prefetch",
                                       "NONE",
                                       "--auto_wrap_policy",
                                       "size_based",
                                       "--min_num_params",
                                       "7",
                                       "--cpu_offload",
                                       "--gradient_checkpointing",
                                       "--parallelism.slot_map",
                                       "block",
                                       "--parallelism.reshard_after_forward",
                                       "node",
                                       "--profiling.enable_profiling",
                                       "--debug.stop_at",
                                       "1:0:step:3"})),
            before);
}

TEST(ConfigIdentity, WhatAllRanksDoTogetherIsCommonToThem) {
  const Config config = from_flags({"--data_parallel", "ddp", "--checkpoint.interval", "3",
                                    "--validation.freq", "5", "--training.steps", "7"});
  const std::vector<std::string> common = common_lines(config);
  EXPECT_TRUE(std::is_sorted(common.begin(), common.end()));
  for (const std::string& line : identity_lines(config)) EXPECT_THAT(common, Contains(line));
  for (const char* line : {"parallelism.strategy=ddp", "checkpoint.interval=3", "validation.freq=5",
                           "training.steps=7", "checkpoint.buddy=false", "model.init=hf"})
    EXPECT_THAT(common, Contains(line));
  EXPECT_EQ(common_lines(from_flags({"--data.path", "elsewhere", "--job.dump_folder", "elsewhere",
                                     "--checkpoint.memory_folder", "elsewhere", "--data.prefetch",
                                     "9", "--comm.train_timeout_seconds", "1"})),
            common_lines(Config{}));
}

TEST(ConfigIdentity, WhatMayChangeABitIsIn) {
  const std::vector<std::pair<std::string, std::string>> changes = {
      {"training.seed", "1"},
      {"training.slots", "6"},
      {"training.seq_len", "8"},
      {"training.local_batch_size", "1"},
      {"training.threads", "2"},
      {"optimizer.lr", "0.1"},
      {"training.reduction", "unordered"},
      {"debug.break_rule", "3"},
      {"model.dim", "512"},
      {"lr_scheduler.total_steps", "7"},
      {"training.mixed_precision_param", "bfloat16"}};
  for (const auto& [key, value] : changes)
    EXPECT_THAT(identity_lines(from_flags({"--" + key, value})), Contains(key + "=" + value));
}

TEST(ConfigIdentity, MuonsKeysAreInOnlyWhereItIsUsed) {
  EXPECT_EQ(identity_lines(from_flags({"--optimizer.momentum", "0.9"})), identity_lines(Config{}));
  for (const std::string& line : identity_lines(Config{}))
    EXPECT_FALSE(line.starts_with("optimizer.momentum")) << line;
  const auto lines = identity_lines(from_flags({"--optimizer.name", "Muon"}));
  EXPECT_THAT(lines, Contains("optimizer.name=Muon"));
  EXPECT_THAT(lines, Contains("optimizer.momentum=0.95"));
}

// A run with moments in fp32 has the identity that it had before there were others.
TEST(ConfigIdentity, WhatMomentsAreKeptInIsInWhereItIsNotFp32) {
  EXPECT_EQ(identity_lines(from_flags({"--optimizer.state_dtype", "float32"})),
            identity_lines(Config{}));
  for (const std::string& line : identity_lines(Config{}))
    EXPECT_FALSE(line.starts_with("optimizer.state_dtype")) << line;
  EXPECT_THAT(identity_lines(from_flags({"--optimizer.state_dtype", "bfloat16"})),
              Contains("optimizer.state_dtype=bfloat16"));
}

TEST(ConfigIdentity, WhereARunStartsFromIsInOnlyWhereItIsUsed) {
  for (const std::string& line : identity_lines(Config{}))
    EXPECT_FALSE(line.starts_with("checkpoint.")) << line;
  const auto lines = identity_lines(from_flags(
      {"--checkpoint.initial_load_path", "a", "--checkpoint.exclude_from_loading", "x.*, y"}));
  EXPECT_THAT(lines, Contains("checkpoint.initial_load_path=a"));
  EXPECT_THAT(lines, Contains("checkpoint.initial_load_model_only=true"));
  EXPECT_THAT(lines, Contains("checkpoint.exclude_from_loading=x.*,y"));
}

TEST(ConfigIdentity, TwoWaysToSayTheSameRunAreOne) {
  EXPECT_EQ(identity_lines(from_flags({"--training.slots", "6"})),
            identity_lines(from_flags({"--training.global_batch_size", "12"})));
  EXPECT_EQ(identity_lines(from_flags({"--model.head_dim", "32", "--model.ffn_dim", "704"})),
            identity_lines(Config{}));
  EXPECT_EQ(
      identity_lines(from_flags({"--training.steps", "50", "--lr_scheduler.total_steps", "100"})),
      identity_lines(Config{}));
  EXPECT_NE(identity_lines(from_flags({"--training.steps", "50"})), identity_lines(Config{}));
  EXPECT_THAT(identity_lines(Config{}), Contains("training.slots=4"));
  EXPECT_THAT(identity_lines(Config{}), Contains("optimizer.lr=3e-04"));
}

}  // namespace
}  // namespace lockstep
