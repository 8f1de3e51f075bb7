// What a model is, without Torch: units, parameter names, shapes, FLOPs, bytes. Everything that
// `plan`, `export` and the trainer must agree on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/result.h"

namespace lockstep::model_spec {

// A tile is 4096 consecutive elements of one parameter, row-major, the last one padded with zeros.
// Sharding cuts only between tiles.
inline constexpr int64_t kTileElements = 4096;

// Sizes of a Llama-style decoder (RMSNorm, RoPE, grouped-query attention, SwiGLU).
struct DecoderShape {
  int64_t dim = 0, n_layers = 0, n_heads = 0, n_kv_heads = 0, head_dim = 0, ffn_dim = 0,
          vocab_size = 0;
  double norm_eps = 1e-5, rope_theta = 10000.0;
  bool tied = false;  // the head uses the embedding's weight
};

struct ParamSpec {
  std::string name;  // as Hugging Face writes it: "model.layers.0.self_attn.q_proj.weight"
  std::vector<int64_t> shape;  // row-major
  double init_std = 0;         // normal(0, init_std); 0: all ones (norm weights)
  int64_t elements() const;
  int64_t tiles() const { return (elements() + kTileElements - 1) / kTileElements; }
  bool decays() const { return shape.size() >= 2; }  // weight decay applies to matrices only
};

// Parameters gathered and freed together.
struct UnitSpec {
  std::string name;
  std::vector<ParamSpec> params;
  int64_t tiles() const;
};

// Units in model order: embedding, blocks, head. With a tied head the embedding's unit serves both
// ends and the head's unit holds the final norm alone.
struct ModelSpec {
  DecoderShape shape;
  std::vector<UnitSpec> units;

  int64_t parameter_count() const;
  int64_t tiles() const;
  // 6*(params - embedding) + 12*layers*heads*head_dim*seq_len: attention counted in full, as the
  // common convention (torchtitan's, PaLM appendix B) does; a causal kernel does about half of
  // that part.
  double flops_per_token(int64_t seq_len) const;
};

// `vocab_size` is used where the config leaves model.vocab_size at 0. Errors: kConfig.
Result<ModelSpec> create(const Config& config, int64_t vocab_size);

}  // namespace lockstep::model_spec
