#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "config/config.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// The message of validate() after `change`; "ok" when there is none.
std::string verdict(const std::function<void(Config&)>& change) {
  Config config;
  change(config);
  const Result<void> result = validate(config);
  if (result.ok()) return "ok";
  EXPECT_EQ(result.error().code, Code::kConfig);
  return result.error().message;
}

TEST(ConfigValidate, DefaultsAreFine) {
  EXPECT_EQ(verdict([](Config&) {}), "ok");
}

TEST(ConfigValidate, WhatGoesByValidationsNeedsSome) {
  EXPECT_EQ(
      verdict([](Config& c) { c.validation.patience = 2; }),
      "validation.patience = 2 needs validations, but validation.freq is 0; set validation.freq");
  EXPECT_THAT(verdict([](Config& c) { c.checkpoint.keep_best = true; }),
              HasSubstr("checkpoint.keep_best = true needs validations"));
  const auto both = [](Config& c) {
    c.checkpoint.keep_best = true;
    c.validation.patience = 2;
    c.validation.freq = 5;
  };
  EXPECT_EQ(verdict(both), "ok");
  EXPECT_THAT(verdict([&](Config& c) {
                both(c);
                c.checkpoint.enable = false;
              }),
              HasSubstr("checkpoint.keep_best needs checkpoints"));
}

TEST(ConfigValidate, Limits) {
  EXPECT_EQ(verdict([](Config& c) { c.training.steps = 0; }), "training.steps = 0: must be >= 1");
  EXPECT_THAT(verdict([](Config& c) { c.training.seq_len = -1; }), HasSubstr("training.seq_len"));
  EXPECT_EQ(verdict([](Config& c) { c.model.norm_eps = 0; }), "model.norm_eps = 0: must be > 0");
  EXPECT_THAT(verdict([](Config& c) { c.optimizer.beta2 = 1; }), HasSubstr("optimizer.beta2 = 1"));
  EXPECT_THAT(verdict([](Config& c) { c.optimizer.lr = std::numeric_limits<double>::quiet_NaN(); }),
              HasSubstr("optimizer.lr = nan"));
  EXPECT_THAT(verdict([](Config& c) {
                c.launcher.nproc_per_node = {2, 0};
              }),
              HasSubstr("launcher.nproc_per_node = 2,0: must be 1 to 4096"));
}

TEST(ConfigValidate, OnlyFullShardReshardsToTheNode) {
  const auto node = [](ShardingStrategy strategy) {
    return verdict([&](Config& c) {
      c.parallelism.strategy = strategy;
      c.parallelism.reshard_after_forward = ReshardAfterForward::kNode;
    });
  };
  EXPECT_EQ(node(ShardingStrategy::kFullShard), "ok");
  for (const auto strategy : {ShardingStrategy::kSingle, ShardingStrategy::kDdp,
                              ShardingStrategy::kShardGradOp, ShardingStrategy::kHybrid})
    EXPECT_THAT(node(strategy), HasSubstr("parallelism.reshard_after_forward = node is for "
                                          "parallelism.strategy = full_shard"));
}

TEST(ConfigValidate, MuonTrainsWholeMatrices) {
  const auto muon = [](Config& c) { c.optimizer.name = OptimizerKind::kMuon; };
  EXPECT_EQ(verdict(muon), "ok");
  EXPECT_EQ(verdict([&](Config& c) { muon(c), c.lora.rank = 8; }),
            "optimizer.name = Muon needs whole matrices, but lora.rank = 8 trains adapters in "
            "their place; use optimizer.name = AdamW, or lora.rank = 0");
  EXPECT_EQ(
      verdict([&](Config& c) { muon(c), c.optimizer.state_dtype = FloatType::kBfloat16; }),
      "optimizer.state_dtype = bfloat16 works with AdamW only, and optimizer.name = Muon keeps its "
      "state in float32; use optimizer.name = AdamW, or optimizer.state_dtype = float32");
  EXPECT_EQ(
      verdict([](Config& c) { c.optimizer.state_dtype = FloatType::kBfloat16, c.lora.rank = 8; }),
      "ok");
  EXPECT_THAT(verdict([](Config& c) { c.optimizer.momentum = 1; }),
              HasSubstr("optimizer.momentum = 1"));
}

// Combinations are looked at where every key keeps its limits: a key of 0 may divide another.
TEST(ConfigValidate, AllThatIsWrongIsSaidAtOnce) {
  EXPECT_EQ(verdict([](Config& c) {
              c.training.steps = 0, c.model.n_heads = 0, c.checkpoint.keep_latest_k = 1;
            }),
            "model.n_heads = 0: must be 1 to 65536\ntraining.steps = 0: must be >= 1");
  EXPECT_THAT(
      verdict([](Config& c) { c.job.name = "", c.model.n_kv_heads = 3, c.data.weights = {5}; }),
      AllOf(HasSubstr("job.name = "), HasSubstr("\ndata.weights holds"),
            HasSubstr("\nmodel.n_heads = 8 is not")));
}

TEST(ConfigValidate, Model) {
  EXPECT_THAT(verdict([](Config& c) { c.model.n_kv_heads = 3; }),
              HasSubstr("n_heads = 8 is not divisible by model.n_kv_heads = 3"));
  EXPECT_THAT(verdict([](Config& c) { c.model.dim = 250; }), HasSubstr("not divisible"));
  EXPECT_THAT(verdict([](Config& c) { c.model.dim = 8 * 31; }),
              HasSubstr("the head dimension is 31 (model.dim / model.n_heads)"));
  EXPECT_THAT(verdict([](Config& c) { c.model.head_dim = 33; }), HasSubstr("(model.head_dim)"));
  EXPECT_EQ(verdict([](Config& c) { c.model.dim = 250, c.model.head_dim = 32; }), "ok");
}

TEST(ConfigValidate, Batch) {
  EXPECT_THAT(verdict([](Config& c) { c.training.global_batch_size = 7; }),
              HasSubstr("7 is not divisible by training.local_batch_size = 2"));
  EXPECT_THAT(verdict([](Config& c) { c.training.global_batch_size = 8, c.training.slots = 3; }),
              HasSubstr("3 slots of local_batch_size = 2 are 6 sequences; set only one"));
  EXPECT_EQ(verdict([](Config& c) { c.training.global_batch_size = 8, c.training.slots = 4; }),
            "ok");
}

TEST(ConfigValidate, AuditedSlotIsOneOfTheStep) {
  EXPECT_THAT(
      verdict([](Config& c) { c.audit.slot = c.training.slots = 4; }),
      HasSubstr("audit.slot = 4 is not a slot: a step has the slots 0 to 3 (training.slots = 4)"));
  EXPECT_EQ(verdict([](Config& c) { c.training.slots = 4, c.audit.slot = 3; }), "ok");
}

TEST(ConfigValidate, Combinations) {
  EXPECT_THAT(verdict([](Config& c) { c.checkpoint.keep_latest_k = 1; }),
              HasSubstr("use 2 or more"));
  EXPECT_EQ(verdict([](Config& c) { c.checkpoint.keep_latest_k = 0; }), "ok");
  EXPECT_THAT(verdict([](Config& c) { c.checkpoint.ephemeral_interval = 50; }),
              HasSubstr("no save between those of checkpoint.interval = 50"));
  EXPECT_EQ(
      verdict([](Config& c) { c.checkpoint.ephemeral_interval = 50, c.checkpoint.interval = 0; }),
      "ok");
  EXPECT_THAT(
      verdict([](Config& c) {
        c.parallelism.strategy = ShardingStrategy::kSingle, c.launcher.nproc_per_node = {1, 2};
      }),
      HasSubstr("single is for one process"));
  EXPECT_THAT(verdict([](Config& c) {
                c.launcher.min_nproc = 2, c.launcher.nproc_per_node = {3, 1};
              }),
              HasSubstr("less than launcher.min_nproc = 2"));
  EXPECT_THAT(verdict([](Config& c) { c.checkpoint.buddy = true; }), HasSubstr("takes none"));
  EXPECT_THAT(
      verdict([](Config& c) { c.checkpoint.memory_interval = 2, c.checkpoint.enable = false; }),
      HasSubstr("checkpoint.enable is false"));
  EXPECT_EQ(verdict([](Config& c) { c.checkpoint.memory_interval = 2, c.checkpoint.buddy = true; }),
            "ok");
  EXPECT_THAT(verdict([](Config& c) { c.lora.target_modules = {"q_proj"}; }),
              HasSubstr("every weight would be trained"));
  EXPECT_EQ(verdict([](Config& c) { c.lora.rank = 4, c.lora.target_modules = {"q_proj"}; }), "ok");
  EXPECT_THAT(verdict([](Config& c) { c.job.name = "a/b"; }), HasSubstr("a single folder name"));
  EXPECT_THAT(verdict([](Config& c) { c.checkpoint.folder = ""; }), HasSubstr("no_enable"));
}

TEST(ConfigValidate, Sources) {
  EXPECT_EQ(verdict([](Config& c) {
              c.data.sources = {"a", "b"};
              c.data.weights = {5, 3};
            }),
            "ok");
  EXPECT_EQ(verdict([](Config& c) { c.data.sources = {"a", "b"}; }), "ok");
  EXPECT_THAT(verdict([](Config& c) {
                c.data.path = "a";
                c.data.sources = {"b"};
              }),
              HasSubstr("both given"));
  EXPECT_THAT(verdict([](Config& c) {
                c.data.sources = {"a", "b"};
                c.data.weights = {5};
              }),
              HasSubstr("data.weights holds 1 weights for 2"));
  EXPECT_THAT(verdict([](Config& c) { c.data.weights = {5}; }), HasSubstr("1 weights for 0"));
  EXPECT_THAT(verdict([](Config& c) {
                c.data.sources = {"a"};
                c.data.weights = {0};
              }),
              HasSubstr("data.weights = 0: must be >= 1"));
  EXPECT_THAT(verdict([](Config& c) { c.data.temperature = 0; }), HasSubstr("must be > 0"));
}

// 0 leaves a time to the number of nodes.
TEST(ConfigValidate, TimesOfTheControlPlane) {
  EXPECT_EQ(verdict([](Config& c) { c.launcher.silence_seconds = 0; }), "ok");
  EXPECT_THAT(verdict([](Config& c) { c.launcher.silence_seconds = 0.4; }),
              HasSubstr("launcher.silence_seconds = 0.4: must be 0, or 0.5 or more"));
  EXPECT_THAT(verdict([](Config& c) { c.launcher.silence_seconds = 61; }),
              HasSubstr("launcher.silence_seconds = 61"));
  EXPECT_THAT(verdict([](Config& c) { c.launcher.ack_seconds = 0.9; }),
              HasSubstr("launcher.ack_seconds = 0.9: must be 0, or 1 or more"));
  EXPECT_EQ(verdict([](Config& c) { c.launcher.ack_seconds = 1; }), "ok");
  EXPECT_THAT(verdict([](Config& c) {
                c.launcher.silence_seconds = 6;
                c.launcher.ack_seconds = 1;
              }),
              HasSubstr("launcher.ack_seconds = 1: must be 0, or 4 or more"));
  EXPECT_THAT(verdict([](Config& c) { c.launcher.reap_seconds = 0; }),
              HasSubstr("launcher.reap_seconds = 0: must be 1 to 3600"));
  EXPECT_THAT(verdict([](Config& c) { c.launcher.join_seconds = 0; }),
              HasSubstr("launcher.join_seconds = 0"));
}

TEST(ConfigMeaning, FoldersAndSlots) {
  Config config;
  EXPECT_EQ(config.dump_folder(), "results/training/run");
  EXPECT_EQ(config.checkpoint_folder(), "results/training/run/checkpoints");
  config.job.dump_folder = "out";
  EXPECT_EQ(config.checkpoint_folder(), "out/checkpoints");
  config.checkpoint.folder = "/scratch/c";
  EXPECT_EQ(config.checkpoint_folder(), "/scratch/c");
  EXPECT_EQ(config.slots(), 4);
  EXPECT_EQ(config.tokens_per_step(), 4 * 2 * 256);
  config.training.global_batch_size = 12;
  EXPECT_EQ(config.slots(), 6);
  config.training.slots = 5;
  EXPECT_EQ(config.slots(), 5);
}

}  // namespace
}  // namespace lockstep
