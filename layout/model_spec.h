// What a model is, without Torch: units, parameter names, shapes, FLOPs, bytes. Everything that
// `plan`, `export` and the trainer must agree on.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "config/config.h"

namespace lockstep::layout {

// A tile is 4096 consecutive elements of one parameter, row-major, the last one padded with zeros.
// Sharding cuts only between tiles.
inline constexpr int64_t kTileElements = 4096;

// What is done to rotary frequencies for longer sequences (transformers, modeling_rope_utils.py).
enum class RopeType { kDefault, kLinear, kDynamic, kYarn, kLlama3 };
struct RopeScaling {
  RopeType type = RopeType::kDefault;
  double factor = 0, low_freq_factor = 1, high_freq_factor = 4;  // the last two: llama3
  double original_positions = 8192;  // trained on; dynamic: where frequencies begin to change
  double beta_fast = 32, beta_slow = 1, attention_factor = 1;  // yarn
  bool truncate = true;                                        // yarn: its bounds are whole pairs
};

// A decoder: blocks of attention and feed-forward, each behind a norm. The defaults of what the
// families differ in are llama's: RMSNorm, rotary positions, silu(gate) * up, no bias.
struct DecoderShape {
  int64_t dim = 0, n_layers = 0, n_heads = 0, n_kv_heads = 0, head_dim = 0, ffn_dim = 0,
          vocab_size = 0;
  double norm_eps = 1e-5, rope_theta = 10000.0;
  bool tied = false;  // the head uses the embedding's weight

  ModelFamily family = ModelFamily::kLlama;
  bool gpt2 = false;              // LayerNorm, gelu(up), [in, out] matrices, q, k and v in one
  int64_t learned_positions = 0;  // rows of the position embedding; 0: rotary
  bool qkv_bias = false, o_bias = false, mlp_bias = false;
  bool qk_norm = false;            // RMSNorm over each query and key head
  bool unit_offset_norms = false;  // RMSNorm multiplies by 1 + weight
  bool post_norms = false;         // a norm over each branch's output as well
  bool geglu = false;              // gelu_new(gate) * up
  double embedding_scale = 1;      // of what the embedding gives; rounded to the compute dtype
  double score_cap = 0;            // of attention's scores: cap * tanh(score / cap); 0: none
  double logit_cap = 0;            // of the logits
  double query_scalar = 0;         // scores are divided by its root; 0: head_dim
  double local_rope_theta = 0;     // of layers with a window, without scaling; 0: rope_theta
  int64_t experts = 0, experts_per_token = 0;  // of ffn_dim, chosen by a router; 0: all rows alike
  bool normed_routing = false;                 // the weights of a row's experts add up to 1
  double balance_loss = 0;  // coefficient of the loss that spreads rows over experts
  RopeScaling rope_scaling;
  // By layer: how many keys a query sees, its own included; 0: all. Empty: all, in every layer.
  std::vector<int64_t> windows;

  float norm_offset() const { return unit_offset_norms ? 1.0f : 0.0f; }
  int64_t window(int64_t layer) const {
    return windows.empty() ? 0 : windows[static_cast<size_t>(layer)];
  }
};

// What a parameter does in its unit.
enum class Role {
  kOther,
  kTokens,
  kPositions,
  kHead,
  kNorm1,
  kNorm1Bias,
  kQ,
  kK,
  kV,
  kQBias,
  kKBias,
  kVBias,
  kQNorm,
  kKNorm,
  kO,
  kOBias,
  kNorm2,
  kNorm2Bias,
  kGate,
  kUp,
  kGateBias,
  kUpBias,
  kDown,
  kDownBias,
  kPostNorm1,
  kPostNorm2,
  kRouter,
};

struct ParamSpec {
  std::string name;  // as Hugging Face writes it: "model.layers.0.self_attn.q_proj.weight"
  std::vector<int64_t> shape;  // row-major; as Hugging Face has it
  double init_std = 0;         // normal(0, init_std); 0: all init_value
  Role role = Role::kOther;
  double init_value = 1;  // ones for norms, zeros for biases and where norms add 1
  double init_bound = 0;  // above 0: uniform in [-init_bound, init_bound)
  int64_t elements() const;
  int64_t tiles() const { return (elements() + kTileElements - 1) / kTileElements; }
  bool decays() const { return shape.size() >= 2; }  // weight decay applies to matrices only
};

// Parameters gathered and freed together.
struct UnitSpec {
  std::string name;
  std::vector<ParamSpec> params;
  bool frozen = false;  // read and never trained: no gradient, no optimizer state
  int64_t tiles() const;
  int64_t elements() const;
  int find(Role role) const;  // index of its first parameter; -1: none
};

// Units in model order: embedding, blocks, head. With a tied head the embedding's unit serves both
// ends and the head's unit holds the final norm alone. Matrices that are multiplied together (q, k,
// v; gate, up) lie one after the other, and so do their biases. Of experts: gate and up of each,
// then down of each; find() gives the first one's. With adapters (lora.h) all of these are frozen,
// and a unit of adapters follows for each block.
struct ModelSpec {
  DecoderShape shape;
  std::vector<UnitSpec> units;
  std::vector<std::string> notes;  // for the user: what config.json says and is not done

  std::span<const UnitSpec> base() const { return std::span(units).first(base_count()); }
  std::span<const UnitSpec> adapters() const { return std::span(units).subspan(base_count()); }
  bool adapted() const { return units.size() > base_count(); }
  int head_unit() const { return static_cast<int>(shape.n_layers) + 1; }
  int adapter_unit(int64_t layer) const { return head_unit() + 1 + static_cast<int>(layer); }

  int64_t parameter_count() const;
  int64_t trained_count() const;  // of the parameters that are not frozen
  int64_t active_count() const;   // of those that a token meets: without the experts not chosen
  int64_t tiles() const;
  // 6*(active params - embedding) + 12*layers*heads*head_dim*seq_len: attention counted in full, as
  // the common convention (torchtitan's, PaLM appendix B) does; a causal kernel does about half of
  // that part. A frozen parameter counts 4: no gradient of its own.
  double flops_per_token(int64_t seq_len) const;

 private:
  size_t base_count() const { return static_cast<size_t>(shape.n_layers) + 2; }
};

// The [model] keys that say what `shape` is, as far as keys can.
void write_keys(const DecoderShape& shape, Config::Model& keys);
// All of it on one line: part of the identity of a model that came from a folder.
std::string architecture_text(const DecoderShape& shape);

}  // namespace lockstep::layout
