#include "cli/convert/convert_rules.h"

#include <algorithm>
#include <cstdlib>

#include "base/text.h"

namespace lockstep::cli {
namespace {

using nlohmann::ordered_json;

struct Word {
  const char* theirs;
  const char* ours;  // "": there is none
};
struct WordRule {
  const char* name;
  const char* key;
  std::vector<Word> words;
};

// Keys whose words are others.
const std::vector<WordRule>& word_rules() {
  static const std::vector<Word> decay = {{"cosine", "cosine"},
                                          {"cosine_with_min_lr", "cosine"},
                                          {"linear", "linear"},
                                          {"sqrt", "sqrt"},
                                          {"constant", "none"},
                                          {"constant_with_warmup", "none"},
                                          {"none", "none"},
                                          {"warmuplr", "none"},
                                          {"warmupdecaylr", "linear"},
                                          {"warmupcosinelr", "cosine"}};
  static const std::vector<Word> adam = {{"adamw", "AdamW"},       {"adam", "AdamW"},
                                         {"adamw_torch", "AdamW"}, {"adamw_hf", "AdamW"},
                                         {"muon", "Muon"},         {"adamw_torch_fused", "AdamW"},
                                         {"fusedadam", "AdamW"},   {"cpuadam", "AdamW"}};
  static const std::vector<Word> precision = {
      {"true", "bfloat16"}, {"full", "bfloat16"},     {"false", "float32"},  {"bf16", "bfloat16"},
      {"no", "float32"},    {"bfloat16", "bfloat16"}, {"float32", "float32"}};
  static const std::vector<Word> recompute = {
      {"true", "full"}, {"false", "none"}, {"offload", "full"}};
  static const std::vector<Word> attention = {{"true", "true"},   {"false", "false"},
                                              {"eager", "false"}, {"flash_attention_2", "true"},
                                              {"sdpa", "true"},   {"flash_attention_3", "true"}};
  static const std::vector<Word> offload = {{"cpu", "true"}};
  static const std::vector<WordRule> rules = {
      {"lr_scheduler", "lr_scheduler.decay_type", decay},
      {"lr_scheduler_type", "lr_scheduler.decay_type", decay},
      {"scheduler.type", "lr_scheduler.decay_type", decay},
      {"decay_lr", "lr_scheduler.decay_type", {{"false", "none"}, {"true", "cosine"}}},
      {"optimizer", "optimizer.name", adam},
      {"optim", "optimizer.name", adam},
      {"optimizer.type", "optimizer.name", adam},
      {"bf16", "training.mixed_precision_param", precision},
      {"bf16.enabled", "training.mixed_precision_param", precision},
      {"mixed_precision", "training.mixed_precision_param", precision},
      {"dtype", "training.mixed_precision_param", precision},
      {"bf16.bf16_optimizer_states", "optimizer.state_dtype", precision},
      {"gradient_checkpointing", "activation_checkpoint.mode", recompute},
      {"fsdp_activation_checkpointing", "activation_checkpoint.mode", recompute},
      {"attn_implementation", "model.fused_attention", attention},
      {"flash_attention", "model.fused_attention", attention},
      {"sdp_attention", "model.fused_attention", attention},
      {"xformers_attention", "model.fused_attention", attention},
      {"offload_optimizer_device", "training.enable_cpu_offload", offload},
      {"offload_param_device", "training.enable_cpu_offload", offload},
      {"zero_optimization.offload_optimizer.device", "training.enable_cpu_offload", offload},
      {"zero_optimization.offload_param.device", "training.enable_cpu_offload", offload},
      {"fsdp_auto_wrap_policy",
       "parallelism.wrap_policy",
       {{"transformer_based_wrap", "module_wrap"},
        {"size_based_wrap", "size_based"},
        {"no_wrap", "none"}}},
      {"fsdp_backward_prefetch",
       "parallelism.backward_prefetch",
       {{"backward_pre", "BACKWARD_PRE"},
        {"backward_post", "BACKWARD_POST"},
        {"no_prefetch", "NONE"}}},
      {"reinit_weights", "model.init", {{"true", "random"}}},
      {"load_best_model_at_end", "checkpoint.keep_best", {{"true", "true"}, {"false", "false"}}},
      {"lora_target_linear", "lora.target_modules", {{"true", "all-linear"}}},
      {"num_machines", "launcher.nnodes", {{"1", "1"}}},
      {"model.name", "model.name", {{"llama3", "llama"}, {"llama", "llama"}, {"llama2", "llama"}}},
  };
  return rules;
}

std::string lower(std::string word) {
  std::transform(word.begin(), word.end(), word.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return word;
}

// What other tools call our strategies, by the key that says it.
const std::vector<Word>& strategies_of(const std::string& name) {
  static const std::vector<Word> sharding = {
      {"full_shard", "full_shard"}, {"1", "full_shard"}, {"shard_grad_op", "shard_grad_op"},
      {"2", "shard_grad_op"},       {"no_shard", "ddp"}, {"3", "ddp"},
      {"hybrid_shard", "hybrid"},   {"4", "hybrid"}};
  static const std::vector<Word> stages = {
      {"3", "full_shard"}, {"2", "shard_grad_op"}, {"1", "shard_grad_op"}, {"0", "ddp"}};
  static const std::vector<Word> types = {
      {"fsdp", "full_shard"}, {"multi_gpu", "ddp"}, {"no", "single"}, {"multi_cpu", "ddp"}};
  static const std::vector<Word> reshards = {{"true", "full_shard"},
                                             {"false", "shard_grad_op"},
                                             {"full_shard", "full_shard"},
                                             {"shard_grad_op", "shard_grad_op"}};
  static const std::vector<Word> uses = {{"true", "full_shard"}};
  static const std::vector<Word> none;
  if (name == "fsdp_sharding_strategy") return sharding;
  if (name == "zero_stage" || name == "zero_optimization.stage") return stages;
  if (name == "distributed_type") return types;
  if (name == "fsdp_reshard_after_forward") return reshards;
  if (name == "use_fsdp") return uses;
  return none;
}

std::string ours_of(const std::vector<Word>& words, const std::string& theirs) {
  for (const Word& word : words)
    if (theirs == word.theirs) return word.ours;
  return "";
}

double number_of(const std::string& word) { return std::strtod(word.c_str(), nullptr); }
int64_t whole_of(const std::string& word) { return std::strtoll(word.c_str(), nullptr, 10); }

}  // namespace

std::string word_of_value(const ordered_json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) {
    const double number = value.get<double>();
    const bool whole = number == static_cast<double>(static_cast<int64_t>(number));
    return whole ? std::to_string(static_cast<int64_t>(number)) : dump_json(value);
  }
  if (!value.is_array()) return dump_json(value);
  std::string list;
  for (const auto& item : value) list += (list.empty() ? "" : ",") + word_of_value(item);
  return list;
}

bool ForeignFacts::take(const std::string& name, const ordered_json& value) {
  const std::string word = lower(word_of_value(value));
  for (const WordRule& rule : word_rules()) {
    if (name != rule.name) continue;
    const std::string ours = ours_of(rule.words, word);
    if (!ours.empty()) keys_[rule.key] = ours;
    return !ours.empty();
  }
  return take_strategy(name, word) || take_training(name, value, word);
}

bool ForeignFacts::take_strategy(const std::string& name, const std::string& word) {
  if (name.ends_with("replicate_degree") || name == "dp_replicate_size") {
    replicate_ = whole_of(word);
    return degrees_ = true;
  }
  if (name.ends_with("shard_degree") || name == "dp_shard_size" ||
      name == "training.data_parallel_degree") {
    shard_ = whole_of(word);
    return degrees_ = true;
  }
  if (name == "parallelism.fsdp_reshard_after_forward") {
    keeps_parameters_ = word == "never";
    return degrees_ = true;
  }
  std::string ours = ours_of(strategies_of(name), word);
  for (const char* each : {"full_shard", "shard_grad_op"})  // "full_shard auto_wrap"
    if (name == "fsdp" && word.find(each) != word.npos) ours = each;
  if (ours.empty()) return false;
  // The type says less than the strategy.
  if (name == "distributed_type" || name == "use_fsdp")
    keys_.try_emplace("parallelism.strategy", ours);
  else
    keys_["parallelism.strategy"] = ours;
  return true;
}

bool ForeignFacts::take_training(const std::string& name, const ordered_json& value,
                                 const std::string& word) {
  if (name == "gradient_accumulation_steps") return (accumulation_ = whole_of(word)) > 0;
  if (name == "warmup_ratio") return (warmup_ratio_ = number_of(word)) >= 0;
  if (name == "min_lr") return (min_lr_ = number_of(word)) >= 0;
  if (name == "main_process_ip") return !(host_ = word).empty();
  if (name == "main_process_port") return !(port_ = word).empty();
  if (name == "validation.enable" || name == "validation.enabled") {
    validation_off_ = word == "false";
    validation_on_ = !validation_off_;
    return true;
  }
  if (name == "validation.steps" || name == "eval_iters") {
    if (whole_of(word) <= 0) return false;
    keys_["validation.slots"] = word;
    return true;
  }
  if (name == "num_processes") {
    keys_["launcher.nproc_per_node"] = word;
    return true;
  }
  if (name == "optimizer.params.betas" && value.is_array() && value.size() == 2) {
    keys_["optimizer.beta1"] = word_of_value(value[0]);
    keys_["optimizer.beta2"] = word_of_value(value[1]);
    return true;
  }
  if (name == "adapter") return word == "lora";  // lora_r says the rest
  if (name == "checkpoint.initial_load_in_hf") return word == "true";
  return (name == "eval_strategy" || name == "evaluation_strategy" || name == "save_strategy") &&
         word == "steps";
}

void ForeignFacts::add_strategy(int64_t ranks) {
  if (!degrees_) return;
  const bool shards = shard_ != 1;
  std::string strategy = keeps_parameters_ ? "shard_grad_op" : "full_shard";
  if (replicate_ > 1) strategy = shards ? "hybrid" : "ddp";
  keys_["parallelism.strategy"] = strategy;
  if (strategy != "hybrid") return;
  if (shard_ < 1 && ranks % replicate_ == 0) shard_ = ranks / replicate_;  // 0: not known
  if (shard_ > 1)
    keys_["parallelism.data_parallel_shard_degree"] = std::to_string(shard_);
  else
    remarks_.push_back(
        text("parallelism.data_parallel_shard_degree: theirs is the number of ranks "
             "by ",
             replicate_,
             ", and without a word the ranks of a node share a copy "
             "here; --ranks N writes it"));
  if (keeps_parameters_)
    remarks_.push_back(
        "hybrid gathers parameters again in the backward pass and has no variant "
        "that keeps them");
}

void ForeignFacts::add_batch(const std::string& tool, const KeyWords& values, int64_t ranks) {
  if (values.contains("training.global_batch_size")) return;
  if (tool == "nanoGPT") ranks = 1;  // its steps are those of all ranks
  if (ranks == 0 && degrees_ && shard_ > 0) ranks = replicate_ * shard_;
  if (ranks == 0 && keys_.contains("launcher.nproc_per_node"))
    ranks = whole_of(keys_["launcher.nproc_per_node"]);
  const int64_t steps = std::max<int64_t>(1, accumulation_);
  const bool has_batch = values.contains("training.local_batch_size") || tool == "torchtitan";
  if (!has_batch && accumulation_ == 0) return;
  keys_["training.slots"] = std::to_string(std::max<int64_t>(1, ranks) * steps);
  if (ranks == 0)
    remarks_.push_back(text("training.slots counts the batches of a step over all ranks: it is ",
                            steps,
                            " times the number of ranks, written here for one rank; "
                            "--ranks N writes it for N"));
}

KeyWords ForeignFacts::keys(const std::string& tool, const KeyWords& values, int64_t ranks) {
  add_strategy(ranks);
  add_batch(tool, values, ranks);
  if (validation_off_) keys_["validation.freq"] = "0";
  if (validation_on_) keys_.try_emplace("validation.freq", "10");  // torchtitan's
  if (min_lr_ >= 0 && values.contains("optimizer.lr"))
    keys_["lr_scheduler.min_lr_factor"] = text(min_lr_ / number_of(values.at("optimizer.lr")));
  if (warmup_ratio_ > 0) {
    if (values.contains("training.steps"))
      keys_["lr_scheduler.warmup_steps"] = std::to_string(
          static_cast<int64_t>(warmup_ratio_ * number_of(values.at("training.steps")) + 0.999999));
    else
      remarks_.push_back(text("lr_scheduler.warmup_steps: write ", warmup_ratio_,
                              " of the steps, which `lockstep train --dry-run` says"));
  }
  if (!host_.empty())
    keys_["launcher.rdzv_endpoint"] = text(host_, ":", port_.empty() ? "29500" : port_);
  return keys_;
}

KeyWords defaults_of(const std::string& tool, const KeyWords& values) {
  if (tool == "torchtitan")
    return {{"optimizer.lr", "8e-4"},
            {"lr_scheduler.warmup_steps", "200"},
            {"lr_scheduler.decay_type", "linear"},
            {"lr_scheduler.min_lr_factor", "0"},
            {"training.steps", "10000"},
            {"training.seq_len", "2048"},
            {"training.local_batch_size", "8"},
            {"training.mixed_precision_param", "bfloat16"},
            {"activation_checkpoint.mode", "selective"},
            {"checkpoint.enable", "false"}};
  if (tool == "axolotl" || tool == "TRL") {
    KeyWords words{{"optimizer.beta2", "0.999"},
                   {"optimizer.weight_decay", "0"},
                   {"lr_scheduler.min_lr_factor", "0"}};
    if (tool == "TRL") words["lr_scheduler.decay_type"] = "linear";
    if (tool == "TRL" && !values.contains("training.steps")) words["training.epochs"] = "3";
    return words;
  }
  if (tool == "nanoGPT" && values.contains("model.n_heads"))
    return {{"model.n_kv_heads", values.at("model.n_heads")}};
  return {};
}

}  // namespace lockstep::cli
