// The sections of Config that say what is trained and how it is spread over ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/choices.h"

namespace lockstep {
inline namespace base {

struct ModelConfig {
  ModelFamily name = ModelFamily::kLlama;
  int64_t dim = 256, n_layers = 4, n_heads = 8, n_kv_heads = 4;
  int64_t head_dim = 0;    // 0: dim / n_heads
  int64_t ffn_dim = 0;     // 0: 8/3 dim, rounded up to a multiple of 64
  int64_t vocab_size = 0;  // 0: the data manifest's
  double norm_eps = 1e-5, rope_theta = 10000.0;
  bool tie_word_embeddings = false;
  bool fused_attention = true;  // false: scores and probabilities as whole matrices
  double dropout = 0;           // of the embedding's and of each branch's output
  std::string hf_assets_path;   // a folder with config.json: it says what the model is
  // kHf: weights from that folder, where given.
  InitialWeights init = InitialWeights::kHf;
  std::vector<std::string> ignore_fields;  // of config.json, that change no arithmetic
};

struct OptimizerConfig {
  OptimizerKind name = OptimizerKind::kAdamW;
  double lr = 3e-4, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;
  double momentum = 0.95;                       // Muon's
  FloatType state_dtype = FloatType::kFloat32;  // of AdamW's moments, as they are kept
};

struct LrSchedulerConfig {
  int64_t warmup_steps = 0;
  LrDecay decay_type = LrDecay::kCosine;
  double decay_ratio = 0;  // of total_steps; 0: all of them after the warm-up
  double min_lr_factor = 0.1;
  int64_t total_steps = 0;  // 0: training.steps
};

struct TrainingConfig {
  int64_t steps = 100;
  int64_t epochs = 0;             // passes over the data, which say the steps; 0: steps does
  int64_t local_batch_size = 2;   // B: sequences in a slot
  int64_t seq_len = 256;          // T: tokens in a sequence
  int64_t slots = 0;              // V: slots in a step; 0: from global_batch_size, else 4
  int64_t global_batch_size = 0;  // sequences in a step = V * B; 0: from slots
  double max_norm = 1.0;          // 0: no clipping
  FloatType mixed_precision_param = FloatType::kFloat32;  // of compute and of the wire
  Reduction reduction = Reduction::kTree;
  double z_loss = 0;  // weight of log(sum(exp(logits)))^2
  double label_smoothing = 0;
  NanPolicy nan_policy = NanPolicy::kStop;
  bool enable_cpu_offload = false;  // shards and optimizer state in host memory
  int64_t seed = 42;
  int64_t threads = 1;  // intra-op threads of a rank; part of the identity
};

struct ParallelismConfig {
  ShardingStrategy strategy = ShardingStrategy::kFullShard;
  int64_t data_parallel_shard_degree = 0;  // hybrid: ranks that share a copy; 0: a node's
  bool forward_prefetch = true;
  BackwardPrefetch backward_prefetch = BackwardPrefetch::kPre;
  WrapPolicy wrap_policy = WrapPolicy::kModuleWrap;
  int64_t min_num_params = 100'000'000;  // kSizeBased: parameters of a unit, at least
  SlotMapKind slot_map = SlotMapKind::kCyclic;
  ReshardAfterForward reshard_after_forward = ReshardAfterForward::kWorld;
};

struct LoraConfig {
  int64_t rank = 0;                              // 0: no adapters, every weight is trained
  double alpha = 16;                             // an adapter's output times alpha / rank is added
  double dropout = 0;                            // of what an adapter reads
  std::vector<std::string> target_modules = {};  // matrices with an adapter; empty: the family's
};

struct ActivationCheckpointConfig {
  Recompute mode = Recompute::kNone;
  int64_t selective_ac_option = 2;  // kSelective: every so many blocks
};

}  // namespace base
}  // namespace lockstep
