#include "config/foreign_keys.h"

#include <algorithm>
#include <map>

#include "base/text.h"
#include "config/config_field.h"
#include "config/foreign_trainers.h"

namespace lockstep {
inline namespace base {
namespace {

using enum Becomes;

constexpr const char* kByPrepare = "`lockstep prepare` makes tokens of text before the run";
constexpr const char* kNoParallelism =
    "models are sharded over data-parallel ranks alone: no tensor, pipeline, context or expert "
    "parallelism";
constexpr const char* kNoCompile = "there is no compiler: the kernels are the program's own";
constexpr const char* kNoFloat8 = "there is no float8 and no MX";
constexpr const char* kByExport = "`lockstep export` writes a model of any checkpoint afterwards";
constexpr const char* kStrategies =
    "ddp: a whole model a rank; full_shard: shards over all ranks; hybrid: a copy over "
    "parallelism.data_parallel_shard_degree ranks";
constexpr const char* kHeldOut =
    "the validation text is what `lockstep prepare --val-fraction` held out";
constexpr const char* kMeeting =
    "`--rdzv-endpoint HOST:PORT` of `lockstep launch` says where nodes meet";
constexpr const char* kLogFiles = "RUN/logs/ has a file of each rank";

constexpr ForeignKey kTorchtitan[] = {
    {"job.config_file", kNowhere, "", "the file is the first argument of `lockstep train`"},
    {"job.dump_folder", kValueOf, "job.dump_folder", ""},
    {"job.description", kValueOf, "job.description", ""},
    {"job.print_config", kNowhere, "", "`--dry-run` prints the config", "false"},
    {"job.print_args", kNowhere, "", "`--dry-run` prints the config", "false"},
    {"job.save_config_file", kNowhere, "", "RUN/run_args.json is always written"},
    {"job.use_for_integration_test", kNowhere, "", "it is about torchtitan's own tests", "any"},
    {"job.custom_config_module", kNowhere, "", "there is no Python at run time", "none"},
    {"model.name", kOtherwise, "model.name",
     "llama3 is llama here; others come from model.hf_assets_path"},
    {"model.flavor", kOtherwise, "model.hf_assets_path",
     "sizes come from a Hugging Face folder, or are keys: model.dim, model.n_layers, "
     "model.n_heads"},
    {"model.hf_assets_path", kValueOf, "model.hf_assets_path", ""},
    {"model.tokenizer_path", kNowhere, "",
     "the tokenizer is the data's: `lockstep prepare "
     "--tokenizer`"},
    {"model.norm_type", kNowhere, "", "the family says which norm there is", "rmsnorm"},
    {"model.converters", kNowhere, "", kNoFloat8, "[]"},
    {"model.print_after_conversion", kNowhere, "", kNoFloat8, "false"},
    {"optimizer.name", kValueOf, "optimizer.name", ""},
    {"optimizer.lr", kValueOf, "optimizer.lr", ""},
    {"optimizer.beta1", kValueOf, "optimizer.beta1", ""},
    {"optimizer.beta2", kValueOf, "optimizer.beta2", ""},
    {"optimizer.eps", kValueOf, "optimizer.eps", ""},
    {"optimizer.weight_decay", kValueOf, "optimizer.weight_decay", ""},
    {"optimizer.fused", kNowhere, "", "there is one implementation, which is fused", "any"},
    {"optimizer.implementation", kNowhere, "", "there is one implementation, which is fused",
     "any"},
    {"optimizer.early_step_in_backward", kNowhere, "", "all gradients come before the step",
     "false"},
    {"lr_scheduler.warmup_steps", kValueOf, "lr_scheduler.warmup_steps", ""},
    {"lr_scheduler.total_steps", kValueOf, "lr_scheduler.total_steps", ""},
    {"lr_scheduler.decay_type", kValueOf, "lr_scheduler.decay_type", ""},
    {"lr_scheduler.decay_ratio", kValueOf, "lr_scheduler.decay_ratio", ""},
    {"lr_scheduler.min_lr_factor", kValueOf, "lr_scheduler.min_lr_factor", ""},
    {"lr_scheduler.lr_min", kValueOf, "lr_scheduler.min_lr_factor", ""},
    {"training.warmup_steps", kValueOf, "lr_scheduler.warmup_steps", ""},
    {"training.dataset", kNowhere, "", kByPrepare},
    {"training.dataset_path", kNowhere, "", kByPrepare},
    {"training.dataloader.*", kNowhere, "", "data.prefetch says how many batches are read ahead"},
    {"training.batch_size", kValueOf, "training.local_batch_size", ""},
    {"training.local_batch_size", kValueOf, "training.local_batch_size", ""},
    {"training.global_batch_size", kValueOf, "training.global_batch_size", ""},
    {"training.seq_len", kValueOf, "training.seq_len", ""},
    {"training.steps", kValueOf, "training.steps", ""},
    {"training.max_norm", kValueOf, "training.max_norm", ""},
    {"training.dtype", kNowhere, "", "weights that are trained are float32", "float32"},
    {"training.mixed_precision_param", kValueOf, "training.mixed_precision_param", ""},
    {"training.mixed_precision_reduce", kNowhere, "", "slots' gradients are added in float32",
     "float32"},
    {"training.enable_cpu_offload", kValueOf, "training.enable_cpu_offload", ""},
    {"training.seed", kValueOf, "training.seed", ""},
    {"training.deterministic", kNowhere, "", "a run is always deterministic", "any"},
    {"training.gc_freq", kNowhere, "", "there is no Python at run time", "any"},
    {"training.gc_debug", kNowhere, "", "there is no Python at run time", "any"},
    {"training.compile", kNowhere, "", kNoCompile, "false"},
    {"training.fp8_linear", kNowhere, "", kNoFloat8, "false"},
    {"training.enable_loss_parallel", kNowhere, "", kNoParallelism, "any"},
    {"training.data_parallel_degree", kOtherwise, "parallelism.strategy", kStrategies, "-1"},
    {"training.data_parallel_replicate_degree", kOtherwise, "parallelism.strategy", kStrategies},
    {"training.data_parallel_shard_degree", kOtherwise, "parallelism.strategy", kStrategies},
    {"training.tensor_parallel_degree", kNowhere, "", kNoParallelism, "1"},
    {"parallelism.data_parallel_replicate_degree", kOtherwise, "parallelism.strategy", kStrategies},
    {"parallelism.data_parallel_shard_degree", kOtherwise, "parallelism.strategy", kStrategies},
    {"parallelism.fsdp_reshard_after_forward", kOtherwise, "parallelism.strategy",
     "shard_grad_op keeps parameters to the end of the step, full_shard does not"},
    {"parallelism.enable_compiled_autograd", kNowhere, "", kNoCompile, "false"},
    {"parallelism.tensor_parallel_degree", kNowhere, "", kNoParallelism, "1"},
    {"parallelism.disable_loss_parallel", kNowhere, "", kNoParallelism, "any"},
    {"parallelism.enable_async_tensor_parallel", kNowhere, "", kNoParallelism, "false"},
    {"parallelism.pipeline_parallel_degree", kNowhere, "", kNoParallelism, "1"},
    {"parallelism.pipeline_parallel_split_points", kNowhere, "", kNoParallelism, "any"},
    {"parallelism.pipeline_parallel_layers_per_stage", kNowhere, "", kNoParallelism, "any"},
    {"parallelism.pipeline_parallel_first_stage_less_layers", kNowhere, "", kNoParallelism, "any"},
    {"parallelism.pipeline_parallel_last_stage_less_layers", kNowhere, "", kNoParallelism, "any"},
    {"parallelism.pipeline_parallel_schedule", kNowhere, "", kNoParallelism, "any"},
    {"parallelism.pipeline_parallel_schedule_csv", kNowhere, "", kNoParallelism, "any"},
    {"parallelism.pipeline_parallel_microbatch_size", kNowhere, "", kNoParallelism, "any"},
    {"parallelism.pipeline_parallel_expert_parallel_overlap", kNowhere, "", kNoParallelism, "any"},
    {"parallelism.module_fqns_per_model_part", kNowhere, "", kNoParallelism, "any"},
    {"parallelism.context_parallel_degree", kNowhere, "", kNoParallelism, "1"},
    {"parallelism.context_parallel_rotate_method", kNowhere, "", kNoParallelism, "any"},
    {"parallelism.context_parallel_load_balancer", kNowhere, "", kNoParallelism, "any"},
    {"parallelism.expert_parallel_degree", kNowhere, "", kNoParallelism, "1"},
    {"parallelism.expert_tensor_parallel_degree", kNowhere, "", kNoParallelism, "1"},
    {"parallelism.expert_parallel_comm_backend", kNowhere, "", kNoParallelism, "any"},
    {"checkpoint.enable", kValueOf, "checkpoint.enable", ""},
    {"checkpoint.enable_checkpoint", kValueOf, "checkpoint.enable", ""},
    {"checkpoint.folder", kValueOf, "checkpoint.folder", ""},
    {"checkpoint.interval", kValueOf, "checkpoint.interval", ""},
    {"checkpoint.interval_type", kOtherwise, "checkpoint.interval_minutes",
     "checkpoint.interval counts steps, checkpoint.interval_minutes time", "steps"},
    {"checkpoint.keep_latest_k", kValueOf, "checkpoint.keep_latest_k", ""},
    {"checkpoint.initial_load_path", kValueOf, "checkpoint.initial_load_path", ""},
    {"checkpoint.initial_load_model_only", kValueOf, "checkpoint.initial_load_model_only", ""},
    {"checkpoint.initial_load_in_hf", kOtherwise, "model.hf_assets_path",
     "the folder gives the architecture and the initial weights", "false"},
    {"checkpoint.initial_load_in_hf_quantized", kNowhere, "", "there are no 4 and 8 bits", "false"},
    {"checkpoint.exclude_from_loading", kValueOf, "checkpoint.exclude_from_loading", ""},
    {"checkpoint.last_save_model_only", kNowhere, "", kByExport, "any"},
    {"checkpoint.model_weights_only", kNowhere, "", kByExport, "any"},
    {"checkpoint.last_save_in_hf", kNowhere, "", kByExport, "false"},
    {"checkpoint.export_dtype", kNowhere, "", "`lockstep export --dtype` says it afterwards",
     "float32"},
    {"checkpoint.async_mode", kOtherwise, "checkpoint.when_busy",
     "saves are always asynchronous; this key says what happens while one runs", "any"},
    {"checkpoint.load_step", kNowhere, "", "the newest whole checkpoint is loaded", "-1"},
    {"checkpoint.load_only", kNowhere, "", "`lockstep eval` and `lockstep generate` only load",
     "false"},
    {"checkpoint.create_seed_checkpoint", kNowhere, "",
     "initial weights do not depend on the ranks, so no seed checkpoint is needed", "any"},
    {"checkpoint.enable_first_step_checkpoint", kOtherwise, "checkpoint.interval",
     "1 saves after the first step, and after each other one", "false"},
    {"checkpoint.enable_ft_dataloader_checkpoints", kNowhere, "",
     "the data's position follows from the step", "any"},
    {"activation_checkpoint.mode", kValueOf, "activation_checkpoint.mode", ""},
    {"activation_checkpoint.selective_ac_option", kValueOf,
     "activation_checkpoint.selective_ac_option", ""},
    {"activation_checkpoint.*", kNowhere, "", "whole blocks are computed again, or none of them",
     "any"},
    {"compile.enable", kNowhere, "", kNoCompile, "false"},
    {"compile.*", kNowhere, "", kNoCompile, "any"},
    {"float8.*", kNowhere, "", kNoFloat8, "any"},
    {"mx.*", kNowhere, "", kNoFloat8, "any"},
    {"quantize.*", kNowhere, "", kNoFloat8, "any"},
    {"comm.init_timeout_seconds", kValueOf, "comm.init_timeout_seconds", ""},
    {"comm.train_timeout_seconds", kValueOf, "comm.train_timeout_seconds", ""},
    {"comm.trace_buf_size", kNowhere, "", "a rank that hangs says where in its own log", "any"},
    {"comm.save_traces_folder", kNowhere, "", "a rank that hangs says where in its own log", "any"},
    {"comm.save_traces_file_prefix", kNowhere, "", "a rank that hangs says where in its own log",
     "any"},
    {"comm.mode", kNowhere, "", "`lockstep plan` says what fits without a run", "default"},
    {"metrics.log_freq", kValueOf, "metrics.log_freq", ""},
    {"metrics.enable_tensorboard", kValueOf, "metrics.enable_tensorboard", ""},
    {"metrics.save_tb_folder", kNowhere, "", "TensorBoard's files are in RUN/tb/", "tb"},
    {"metrics.enable_wandb", kNowhere, "", "`lockstep track` sends a run's curves to W&B", "false"},
    {"metrics.save_for_all_ranks", kNowhere, "", "metrics are of all ranks together", "false"},
    {"metrics.rank_0_only", kNowhere, "", "metrics are of all ranks together", "true"},
    {"metrics.disable_color_printing", kNowhere, "", "the log has no colours", "any"},
    {"metrics.enable_color_printing", kNowhere, "", "the log has no colours", "any"},
    {"profiling.enable_profiling", kValueOf, "profiling.enable_profiling", ""},
    {"profiling.save_traces_folder", kValueOf, "profiling.save_traces_folder", ""},
    {"profiling.profile_freq", kValueOf, "profiling.profile_freq", ""},
    {"profiling.enable_memory_snapshot", kNowhere, "", "`lockstep plan --probe` measures memory",
     "false"},
    {"profiling.save_memory_snapshot_folder", kNowhere, "",
     "`lockstep plan --probe` measures memory", "any"},
    {"memory_estimation.*", kNowhere, "", "`lockstep plan` predicts memory", "any"},
    {"validation.enable", kOtherwise, "validation.freq", "0 is off, and any other number is on"},
    {"validation.enabled", kOtherwise, "validation.freq", "0 is off, and any other number is on"},
    {"validation.freq", kValueOf, "validation.freq", ""},
    {"validation.dataset", kNowhere, "", kHeldOut},
    {"validation.dataset_path", kNowhere, "", kHeldOut},
    {"validation.dataloader.*", kNowhere, "", kHeldOut, "any"},
    {"validation.steps", kOtherwise, "validation.slots",
     "a slot is training.local_batch_size sequences; -1 has no counterpart"},
    {"validation.local_batch_size", kNowhere, "", "it is training.local_batch_size"},
    {"validation.seq_len", kNowhere, "", "it is training.seq_len"},
    {"debug.seed", kValueOf, "training.seed", ""},
    {"debug.deterministic", kNowhere, "", "a run is always deterministic", "any"},
    {"debug.deterministic_warn_only", kNowhere, "", "a run is always deterministic", "any"},
    {"debug.*", kNowhere, "", "it is about torchtitan's own code", "any"},
    {"experimental.pipeline_parallel_degree", kNowhere, "", kNoParallelism, "1"},
    {"experimental.context_parallel_degree", kNowhere, "", kNoParallelism, "1"},
    {"experimental.enable_async_tensor_parallel", kNowhere, "", kNoParallelism, "false"},
    {"experimental.enable_compiled_autograd", kNowhere, "", kNoCompile, "false"},
    {"experimental.pipeline_*", kNowhere, "", kNoParallelism, "any"},
    {"experimental.context_*", kNowhere, "", kNoParallelism, "any"},
    {"experimental.custom_import", kNowhere, "", "there is no Python at run time", "none"},
    {"experimental.custom_args_module", kNowhere, "", "there is no Python at run time", "none"},
    {"fault_tolerance.*", kNowhere, "", "`lockstep launch` goes on when ranks or nodes are lost",
     "any"},
    {"deepep.*", kNowhere, "", kNoParallelism, "any"},
};

constexpr ForeignKey kTorchrun[] = {
    {"nproc_per_node", kValueOf, "launcher.nproc_per_node", ""},
    {"nnodes", kValueOf, "launcher.nnodes", ""},
    {"max_restarts", kValueOf, "launcher.max_restarts", ""},
    {"rdzv_endpoint", kValueOf, "launcher.rdzv_endpoint", ""},
    {"rdzv_id", kValueOf, "launcher.rdzv_id", ""},
    {"local_addr", kValueOf, "launcher.local_addr", ""},
    {"node_rank", kNowhere, "", "nodes find each other and have no fixed ranks"},
    {"rdzv_backend", kNowhere, "", kMeeting},
    {"rdzv_conf", kOtherwise, "launcher.join_seconds",
     "join_timeout is launcher.join_seconds, last_call_timeout launcher.last_call_seconds"},
    {"master_addr", kNowhere, "", kMeeting},
    {"master_port", kNowhere, "", kMeeting},
    {"standalone", kNowhere, "", "one machine needs no such option", "any"},
    {"monitor_interval", kNowhere, "", "a worker's death is noticed at once", "any"},
    {"log_dir", kNowhere, "", kLogFiles},
    {"redirects", kNowhere, "", kLogFiles, "any"},
    {"tee", kNowhere, "", kLogFiles, "any"},
    {"local_ranks_filter", kNowhere, "", kLogFiles, "any"},
    {"role", kNowhere, "", "all workers are alike", "any"},
    {"start_method", kNowhere, "", "workers are processes of their own", "any"},
    {"no_python", kNowhere, "", "there is no Python at run time", "any"},
    {"signals_to_handle", kOtherwise, "launcher.grace_seconds",
     "TERM, INT and USR1 save and stop within these seconds"},
    {"numa_binding", kNowhere, "", "the batch system binds processes"},
};

// "parallelism.tensor_parallel_degree" for "tensor_parallel_degree".
std::string_view after_dot(std::string_view name) { return name.substr(name.rfind('.') + 1); }

bool covers(const ForeignKey& key, std::string_view name) {
  std::string_view known = key.name;
  if (known == name) return true;
  if (!known.ends_with('*')) return false;
  known.remove_suffix(1);
  return name.starts_with(known) || text(name, ".") == known;
}

struct ForeignFlag {
  const char* whose;
  const char* instead;
};

std::string here(const ForeignKey& key) {
  if (key.becomes == kValueOf) return text("here it is ", key.key);
  if (key.becomes == kOtherwise) return text("here it is ", key.key, " (", key.words, ")");
  return key.words;
}

}  // namespace

std::span<const ForeignTool> foreign_tools() {
  static const ForeignTool tools[] = {
      {"torchtitan", kTorchtitan},       {"axolotl", axolotl_keys()},     {"TRL", trainer_keys()},
      {"accelerate", accelerate_keys()}, {"DeepSpeed", deepspeed_keys()}, {"torchrun", kTorchrun},
      {"nanoGPT", nanogpt_keys()}};
  return tools;
}

const ForeignKey* find_foreign_key(const ForeignTool& tool, std::string_view name) {
  std::string plain(name);
  std::replace(plain.begin(), plain.end(), '-', '_');
  const auto first = [&](auto fits) -> const ForeignKey* {
    for (const ForeignKey& key : tool.keys)
      if (fits(std::string_view(key.name))) return &key;
    return nullptr;
  };
  if (const auto* key = first([&](std::string_view known) { return known == plain; })) return key;
  // A part of a section has a prefix there, or the section is not said.
  const bool has_dot = plain.find('.') != std::string::npos;
  if (const auto* key = first([&](std::string_view known) {
        return has_dot ? known == after_dot(plain) : after_dot(known) == plain;
      }))
    return key;
  for (const ForeignKey& key : tool.keys)
    if (covers(key, plain)) return &key;
  return nullptr;
}

std::string foreign_flag_words(const std::string& name) {
  constexpr ForeignFlag kLogs{
      "torchrun's",
      "the output of every rank is in RUN/logs/rank_*.log, and that of rank 0 is shown"};
  constexpr ForeignFlag kMeet{"torchrun's", "--rdzv-endpoint HOST:PORT says where nodes meet"};
  constexpr ForeignFlag kWorkers{
      "other tools",
      "a node has one worker for each GPU, or the number that --nproc-per-node gives"};
  constexpr ForeignFlag kSlurm{"sbatch's", "`lockstep submit` passes it on"};
  static const std::map<std::string, ForeignFlag> known = {
      {"tee", kLogs},
      {"redirects", kLogs},
      {"log_dir", {"torchrun's", "logs are in the run's folder, which is --job.dump_folder"}},
      {"local_ranks_filter",
       {"torchrun's",
        "the output of rank 0 is shown, and RUN/logs/rank_*.log have that of each rank"}},
      {"standalone", {"torchrun's", "one machine needs no such option"}},
      {"node_rank", {"torchrun's", "nodes find each other and have no fixed ranks"}},
      {"rdzv_backend",
       {"torchrun's",
        "there is only one backend; --rdzv-endpoint HOST:PORT or file:DIR says where nodes meet"}},
      {"rdzv_conf", {"torchrun's", "--rdzv-endpoint HOST:PORT or file:DIR says where nodes meet"}},
      {"master_addr", kMeet},
      {"master_port", kMeet},
      {"monitor_interval", {"torchrun's", "a worker's death is noticed at once"}},
      {"gpus", kWorkers},
      {"num_gpus", kWorkers},
      {"num_processes", kWorkers},
      {"devices", kWorkers},
      {"account", kSlurm},
      {"gpus_per_node", kSlurm},
      {"gres", kSlurm},
      {"nodes", kSlurm},
      {"partition", kSlurm},
      {"qos", kSlurm},
      {"time", kSlurm}};
  const auto found = known.find(name);
  if (found == known.end()) return "";
  return text("lockstep does not have this flag of ", found->second.whose, ": ",
              found->second.instead);
}

std::string foreign_key_words(std::string_view name) {
  const auto& own = config_fields();
  const bool is_own_word = std::any_of(own.begin(), own.end(),
                                       [&](const ConfigField& field) { return field.key == name; });
  for (const bool whole : {true, false})
    for (const ForeignTool& tool : foreign_tools())
      for (const ForeignKey& key : tool.keys) {
        // A key of a section is not one that has the same last word elsewhere; nor is a last word
        // alone foreign where it is that of a key of ours.
        const bool is_last_word =
            !is_own_word && name.find('.') == std::string_view::npos && after_dot(key.name) == name;
        if (whole ? covers(key, name) : is_last_word)
          return text("this is a key of ", tool.name, ": ", here(key));
      }
  return "";
}

}  // namespace base
}  // namespace lockstep
