#include "cli/convert/convert_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "cli/convert/convert_rules.h"
#include "config/config.h"
#include "config/foreign_keys.h"
#include "config/toml_json.h"
#include "tests/support/temp_dir.h"

namespace lockstep::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

// Configs with the keys of torchtitan 0.1 to 0.2.2, as people write them.
struct TitanConfig {
  const char* name;
  const char* toml;
};

constexpr TitanConfig kTitanConfigs[] = {
    {"debug model of 0.2.2", R"(
[job]
dump_folder = "./outputs"
description = "debug training"
print_config = false
[profiling]
enable_profiling = false
save_traces_folder = "profile_trace"
profile_freq = 10
enable_memory_snapshot = false
save_memory_snapshot_folder = "memory_snapshot"
[metrics]
log_freq = 1
disable_color_printing = false
enable_tensorboard = false
save_tb_folder = "tb"
enable_wandb = false
[model]
name = "llama3"
flavor = "debugmodel"
hf_assets_path = "./tests/assets/tokenizer"
converters = []
[optimizer]
name = "AdamW"
lr = 8e-4
eps = 1e-8
[lr_scheduler]
warmup_steps = 2
decay_ratio = 0.8
decay_type = "linear"
min_lr_factor = 0.0
[training]
local_batch_size = 8
seq_len = 2048
max_norm = 1.0
steps = 10
dataset = "c4_test"
[parallelism]
data_parallel_replicate_degree = 1
data_parallel_shard_degree = -1
fsdp_reshard_after_forward = "default"
tensor_parallel_degree = 1
enable_async_tensor_parallel = false
pipeline_parallel_degree = 1
pipeline_parallel_schedule = "1F1B"
context_parallel_degree = 1
[checkpoint]
enable = false
folder = "checkpoint"
interval = 10
last_save_model_only = false
export_dtype = "float32"
async_mode = "disabled"
[activation_checkpoint]
mode = "selective"
selective_ac_option = "2"
[compile]
enable = false
components = ["model", "loss"]
[quantize.linear.float8]
enable_fsdp_float8_all_gather = false
filter_fqns = ["output"]
[validation]
enable = false
dataset = "c4_validation"
freq = 5
steps = 10
)"},
    {"8 B over 8 GPUs", R"(
[model]
name = "llama3"
flavor = "8B"
hf_assets_path = "./assets/hf/Llama-3.1-8B"
[optimizer]
lr = 3e-4
[training]
local_batch_size = 1
seq_len = 8192
steps = 1000
dataset = "c4"
[checkpoint]
enable = true
interval = 500
async_mode = "async"
[validation]
enable = true
freq = 500
steps = 1200
)"},
    {"HSDP", R"(
[parallelism]
data_parallel_replicate_degree = 2
data_parallel_shard_degree = 4
[training]
local_batch_size = 2
global_batch_size = 64
)"},
    {"DDP", R"(
[parallelism]
data_parallel_replicate_degree = 4
data_parallel_shard_degree = 1
[training]
local_batch_size = 2
)"},
    {"parameters are kept", R"(
[parallelism]
fsdp_reshard_after_forward = "never"
[debug]
seed = 7
deterministic = true
)"},
    {"0.1.0", R"(
[model]
name = "llama3"
flavor = "8B"
norm_type = "rmsnorm"
tokenizer_path = "./tokenizer.model"
[optimizer]
fused = true
[training]
batch_size = 4
warmup_steps = 100
data_parallel_replicate_degree = 1
data_parallel_shard_degree = -1
tensor_parallel_degree = 1
compile = false
[experimental]
context_parallel_degree = 1
pipeline_parallel_degree = 1
enable_async_tensor_parallel = false
[checkpoint]
enable_checkpoint = true
interval_type = "steps"
interval = 500
model_weights_only = false
[float8]
enable_float8_linear = false
)"},
    {"tensor parallelism", R"(
[parallelism]
tensor_parallel_degree = 8
enable_async_tensor_parallel = true
pipeline_parallel_degree = 4
pipeline_parallel_schedule = "Interleaved1F1B"
[compile]
enable = true
[quantize.linear.float8]
enable_fsdp_float8_all_gather = true
)"},
    {"fault tolerance", R"(
[fault_tolerance]
enable = true
replica_id = 0
group_size = 2
[comm]
init_timeout_seconds = 300
train_timeout_seconds = 100
trace_buf_size = 20000
)"},
    {"initial weights", R"(
[checkpoint]
enable = true
initial_load_path = "seed/step-0"
initial_load_model_only = true
initial_load_in_hf = false
exclude_from_loading = ["lm_head.*"]
keep_latest_k = 5
load_step = -1
[lr_scheduler]
decay_type = "cosine"
lr_min = 0.1
)"},
    {"full activation checkpointing, memory", R"(
[activation_checkpoint]
mode = "full"
early_stop = false
[memory_estimation]
enabled = false
disable_fake_mode = false
[metrics]
enable_wandb = true
save_for_all_ranks = false
[training]
enable_cpu_offload = true
mixed_precision_param = "bfloat16"
mixed_precision_reduce = "float32"
gc_freq = 50
)"},
};

ConvertedConfig converted(const std::string& json, const ConvertOptions& options = {}) {
  const auto made = convert_config(json, "their.file", options);
  EXPECT_TRUE(made.ok()) << made.error().message;
  return made.ok() ? made.value() : ConvertedConfig{};
}

std::string json_of(const char* toml) {
  const test_support::TempDir folder;
  std::ofstream(folder / "titan.toml") << toml;
  return toml_as_json(folder / "titan.toml").value();
}

// As a run would read it.
Config config_of(const ConvertedConfig& made) {
  const test_support::TempDir folder;
  std::ofstream(folder / "run.toml") << made.toml;
  const auto parsed = parse_config(folder / "run.toml", {});
  EXPECT_TRUE(parsed.ok()) << parsed.error().message << "\n" << made.toml;
  if (!parsed.ok()) return {};
  const auto valid = validate(parsed.value().config);
  EXPECT_TRUE(valid.ok()) << valid.error().message << "\n" << made.toml;
  return parsed.value().config;
}

Config of_titan(std::string_view name) {
  for (const TitanConfig& each : kTitanConfigs)
    if (name == each.name) return config_of(converted(json_of(each.toml)));
  ADD_FAILURE() << name;
  return {};
}

TEST(ConvertConfig, EveryTorchtitanConfigBecomesOneThatARunTakes) {
  for (const TitanConfig& each : kTitanConfigs) {
    const ConvertedConfig made = converted(json_of(each.toml));
    EXPECT_EQ(made.tool, "torchtitan") << each.name;
    EXPECT_EQ(made.wrong_words, "") << each.name;
    EXPECT_THAT(made.toml, Not(HasSubstr("knows no such key"))) << each.name << "\n" << made.toml;
    config_of(made);
  }
}

TEST(ConvertConfig, TorchtitansValuesAndDefaultsAreTaken) {
  const Config debug = of_titan("debug model of 0.2.2");
  EXPECT_EQ(debug.optimizer.lr, 8e-4);
  EXPECT_EQ(debug.lr_scheduler.decay_ratio, 0.8);
  EXPECT_EQ(debug.training.steps, 10);
  EXPECT_EQ(debug.training.local_batch_size, 8);
  EXPECT_EQ(debug.activation_checkpoint.mode, Recompute::kSelective);
  EXPECT_FALSE(debug.checkpoint.enable);
  EXPECT_EQ(debug.validation.freq, 0) << "validation.enable is false";
  const Config large = of_titan("8 B over 8 GPUs");
  EXPECT_EQ(large.training.mixed_precision_param, FloatType::kBfloat16);
  EXPECT_EQ(large.lr_scheduler.warmup_steps, 200);
  EXPECT_EQ(large.lr_scheduler.decay_type, LrDecay::kLinear);
  EXPECT_EQ(large.lr_scheduler.min_lr_factor, 0);
  EXPECT_EQ(large.validation.freq, 500);
  EXPECT_EQ(large.validation.slots, 1200);
  const Config old = of_titan("0.1.0");
  EXPECT_EQ(old.training.local_batch_size, 4);
  EXPECT_EQ(old.lr_scheduler.warmup_steps, 100);
  EXPECT_TRUE(old.checkpoint.enable);
  EXPECT_EQ(of_titan("parameters are kept").training.seed, 7);
}

TEST(ConvertConfig, DegreesBecomeAStrategyAndSlots) {
  const Config hybrid = of_titan("HSDP");
  EXPECT_EQ(hybrid.parallelism.strategy, ShardingStrategy::kHybrid);
  EXPECT_EQ(hybrid.parallelism.data_parallel_shard_degree, 4);
  EXPECT_EQ(hybrid.slots(), 32);
  const Config ddp = of_titan("DDP");
  EXPECT_EQ(ddp.parallelism.strategy, ShardingStrategy::kDdp);
  EXPECT_EQ(ddp.slots(), 4);
  EXPECT_EQ(of_titan("parameters are kept").parallelism.strategy, ShardingStrategy::kShardGradOp);
  const std::string large = json_of(kTitanConfigs[1].toml);
  EXPECT_EQ(config_of(converted(large, {.tool = "", .ranks = 8})).slots(), 8);
  EXPECT_THAT(converted(large).toml, HasSubstr("--ranks N"));
  // Torchtitan's -1 is what is left of the ranks, and its batch is a rank's without a word.
  const std::string open =
      R"({"parallelism": {"data_parallel_replicate_degree": 2, "data_parallel_shard_degree": -1}})";
  const Config left = config_of(converted(open, {.tool = "", .ranks = 8}));
  EXPECT_EQ(left.parallelism.data_parallel_shard_degree, 4);
  EXPECT_EQ(left.slots(), 8);
  EXPECT_THAT(converted(open).toml, HasSubstr("# parallelism.data_parallel_shard_degree: theirs"));
}

TEST(ConvertConfig, WhatHasNoCounterpartIsACommentWithTheReason) {
  const ConvertedConfig made = converted(json_of(kTitanConfigs[6].toml));
  EXPECT_THAT(made.toml,
              HasSubstr("# parallelism.tensor_parallel_degree = 8: no counterpart: models are "
                        "sharded over data-parallel ranks alone"));
  EXPECT_THAT(made.toml,
              HasSubstr("# compile.enable = true: no counterpart: there is no compiler"));
  EXPECT_THAT(made.toml, HasSubstr("# These keys say what happens here anyway, or nothing: "));
  EXPECT_EQ(made.without, 4);
  const std::string titan = R"({"training": {"steps": 5, "stepz": 1}})";
  EXPECT_THAT(converted(titan).toml, HasSubstr("# training.stepz = 1: no counterpart: lockstep"));
}

TEST(ConvertConfig, AxolotlsYamlAsJson) {
  const ConvertedConfig made = converted(
      R"({"base_model": "models/Qwen3-0.6B", "datasets": [{"path": "a", "type": "alpaca"}],
          "sequence_len": 1024, "sample_packing": true, "micro_batch_size": 2,
          "gradient_accumulation_steps": 4, "num_epochs": 3.0, "optimizer": "adamw_torch_fused",
          "learning_rate": "2e-5", "lr_scheduler": "cosine", "bf16": "auto", "warmup_ratio": 0.1,
          "gradient_checkpointing": true, "adapter": "lora", "lora_r": 16, "lora_alpha": 32,
          "lora_target_linear": true, "saves_per_epoch": 1,
          "fsdp": ["full_shard", "auto_wrap"], "wandb_project": null,
          "fsdp_config": {"reshard_after_forward": true, "offload_params": false}})",
      {.tool = "", .ranks = 8});
  EXPECT_EQ(made.tool, "axolotl");
  const Config config = config_of(made);
  EXPECT_EQ(config.model.hf_assets_path, "models/Qwen3-0.6B");
  EXPECT_EQ(config.optimizer.lr, 2e-5);
  EXPECT_EQ(config.optimizer.beta2, 0.999);
  EXPECT_EQ(config.optimizer.weight_decay, 0);
  EXPECT_EQ(config.training.epochs, 3);
  EXPECT_EQ(config.slots(), 32);
  EXPECT_EQ(config.lora.rank, 16);
  EXPECT_EQ(config.lora.target_modules, std::vector<std::string>{"all-linear"});
  EXPECT_EQ(config.activation_checkpoint.mode, Recompute::kFull);
  EXPECT_EQ(config.parallelism.strategy, ShardingStrategy::kFullShard);
  EXPECT_THAT(made.toml, HasSubstr("# datasets = "));
  EXPECT_THAT(made.toml, HasSubstr("# saves_per_epoch = 1: no counterpart: it would be "));
  EXPECT_THAT(made.toml, HasSubstr("write 0.1 of the steps"));
}

TEST(ConvertConfig, DeepspeedsAndAcceleratesAndNanogpts) {
  const ConvertedConfig deepspeed = converted(
      R"({"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4,
          "gradient_accumulation_steps": "auto", "gradient_clipping": 0.5,
          "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "betas": [0.9, 0.99]}},
          "bf16": {"enabled": true}, "fp16": {"enabled": false, "loss_scale": 0},
          "zero_optimization": {"stage": 3, "overlap_comm": true,
                                "offload_optimizer": {"device": "cpu", "pin_memory": true}}})");
  EXPECT_EQ(deepspeed.tool, "DeepSpeed");
  const Config ds = config_of(deepspeed);
  EXPECT_EQ(ds.slots(), 8);
  EXPECT_EQ(ds.optimizer.beta2, 0.99);
  EXPECT_EQ(ds.training.max_norm, 0.5);
  EXPECT_TRUE(ds.training.enable_cpu_offload);
  EXPECT_EQ(ds.training.mixed_precision_param, FloatType::kBfloat16);
  EXPECT_EQ(ds.parallelism.strategy, ShardingStrategy::kFullShard);
  EXPECT_EQ(deepspeed.without, 0) << deepspeed.toml;

  const ConvertedConfig accelerate = converted(
      R"({"compute_environment": "LOCAL_MACHINE", "distributed_type": "FSDP", "num_processes": 4,
          "num_machines": 1, "machine_rank": 0, "mixed_precision": "bf16", "tpu_env": [],
          "fsdp_config": {"fsdp_sharding_strategy": "SHARD_GRAD_OP",
                          "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
                          "fsdp_backward_prefetch": "BACKWARD_PRE", "fsdp_offload_params": false,
                          "fsdp_state_dict_type": "SHARDED_STATE_DICT"}})");
  EXPECT_EQ(accelerate.tool, "accelerate");
  EXPECT_EQ(config_of(accelerate).parallelism.strategy, ShardingStrategy::kShardGradOp);
  EXPECT_EQ(config_of(accelerate).launcher.nproc_per_node, std::vector<int64_t>{4});
  EXPECT_EQ(accelerate.without, 0) << accelerate.toml;

  const ConvertedConfig nano = converted(
      R"({"block_size": 256, "batch_size": 64, "n_layer": 6, "n_head": 6, "n_embd": 384,
          "max_iters": 5000, "learning_rate": 1e-3, "min_lr": 1e-4, "beta2": 0.99,
          "gradient_accumulation_steps": 40,
          "eval_interval": 250, "eval_iters": 200, "out_dir": "out", "dataset": "shakespeare"})");
  EXPECT_EQ(nano.tool, "nanoGPT");
  EXPECT_NEAR(config_of(nano).lr_scheduler.min_lr_factor, 0.1, 1e-12);
  EXPECT_EQ(config_of(nano).model.n_kv_heads, 6);
  EXPECT_EQ(config_of(nano).slots(), 40) << "nanoGPT divides them by the ranks";

  const ConvertedConfig trl = converted(
      R"({"model_name_or_path": "m", "per_device_train_batch_size": 2, "learning_rate": 2e-4,
          "gradient_accumulation_steps": 8, "lr_scheduler_type": "cosine", "warmup_ratio": 0.03,
          "max_steps": 1000, "max_length": 2048, "packing": true, "bf16": true,
          "eval_strategy": "steps", "eval_steps": 100, "report_to": ["wandb"]})");
  EXPECT_EQ(trl.tool, "TRL");
  EXPECT_EQ(config_of(trl).lr_scheduler.warmup_steps, 30);
  EXPECT_EQ(config_of(trl).training.steps, 1000);
}

TEST(ConvertConfig, WhatIsNoToolsConfigIsRefused) {
  EXPECT_THAT(convert_config("[1]", "f", {}).error().message, HasSubstr("it is no config"));
  EXPECT_THAT(convert_config(R"({"qqq": 1})", "f", {}).error().message,
              HasSubstr("--from TOOL says whose it is"));
}

TEST(ForeignKeys, EveryKeyThatIsSaidToBeOursIs) {
  const auto flags = config_flags();
  int64_t rows = 0;
  for (const ForeignTool& tool : foreign_tools())
    for (const ForeignKey& key : tool.keys) {
      ++rows;
      const std::string ours = key.key;
      EXPECT_EQ(ours.empty(), key.becomes == Becomes::kNowhere) << tool.name << ": " << key.name;
      EXPECT_EQ(std::string_view(key.words).empty(), key.becomes == Becomes::kValueOf) << key.name;
      const bool known = ours.empty() || std::any_of(flags.begin(), flags.end(),
                                                     [&](const auto& f) { return f.name == ours; });
      EXPECT_TRUE(known) << tool.name << ": " << key.name << " -> " << ours;
    }
  EXPECT_GT(rows, 350);
}

}  // namespace
}  // namespace lockstep::cli
