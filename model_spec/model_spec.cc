#include "model_spec/model_spec.h"

#include <cmath>

#include "base/text.h"

namespace lockstep::model_spec {
namespace {

constexpr double kInitStd = 0.02;

UnitSpec block_unit(const DecoderShape& s, int64_t layer) {
  const std::string at = text("model.layers.", layer, ".");
  const int64_t q = s.n_heads * s.head_dim, kv = s.n_kv_heads * s.head_dim;
  // Projections back into the residual stream start smaller, so that its variance does not grow
  // with depth.
  const double out_std = kInitStd / std::sqrt(2.0 * static_cast<double>(s.n_layers));
  return {text("layers.", layer),
          {{at + "input_layernorm.weight", {s.dim}, 0},
           {at + "self_attn.q_proj.weight", {q, s.dim}, kInitStd},
           {at + "self_attn.k_proj.weight", {kv, s.dim}, kInitStd},
           {at + "self_attn.v_proj.weight", {kv, s.dim}, kInitStd},
           {at + "self_attn.o_proj.weight", {s.dim, q}, out_std},
           {at + "post_attention_layernorm.weight", {s.dim}, 0},
           {at + "mlp.gate_proj.weight", {s.ffn_dim, s.dim}, kInitStd},
           {at + "mlp.up_proj.weight", {s.ffn_dim, s.dim}, kInitStd},
           {at + "mlp.down_proj.weight", {s.dim, s.ffn_dim}, out_std}}};
}

Result<DecoderShape> resolve_shape(const Config& config, int64_t data_vocab_size) {
  const Config::Model m = resolved(config).model;
  DecoderShape s{m.dim,     m.n_layers,   m.n_heads,  m.n_kv_heads, m.head_dim,
                 m.ffn_dim, m.vocab_size, m.norm_eps, m.rope_theta, m.tie_word_embeddings};
  if (s.head_dim * s.n_heads != s.dim && config.model.head_dim == 0)
    return Error{Code::kConfig,
                 text("model.dim = ", s.dim, " is not a multiple of model.n_heads = ", s.n_heads,
                      "; change one, or give model.head_dim")};
  if (s.head_dim % 2 != 0)
    return Error{
        Code::kConfig,
        text("the head dimension is ", s.head_dim,
             "; rotary embeddings need an even one: change model.dim, n_heads or head_dim")};
  if (s.n_heads % s.n_kv_heads != 0)
    return Error{Code::kConfig, text("model.n_heads = ", s.n_heads,
                                     " is not a multiple of model.n_kv_heads = ", s.n_kv_heads)};
  if (s.vocab_size == 0) s.vocab_size = data_vocab_size;
  if (s.vocab_size <= 0)
    return Error{Code::kConfig,
                 "model.vocab_size is 0 and no data set says how large the vocabulary is; "
                 "give --data.path or model.vocab_size"};
  return s;
}

}  // namespace

int64_t ParamSpec::elements() const {
  int64_t n = 1;
  for (int64_t extent : shape) n *= extent;
  return n;
}

int64_t UnitSpec::tiles() const {
  int64_t n = 0;
  for (const ParamSpec& p : params) n += p.tiles();
  return n;
}

int64_t ModelSpec::parameter_count() const {
  int64_t n = 0;
  for (const UnitSpec& u : units)
    for (const ParamSpec& p : u.params) n += p.elements();
  return n;
}

int64_t ModelSpec::tiles() const {
  int64_t n = 0;
  for (const UnitSpec& u : units) n += u.tiles();
  return n;
}

double ModelSpec::flops_per_token(int64_t seq_len) const {
  const double embedding = static_cast<double>(shape.vocab_size * shape.dim);
  // A tied weight is counted once above and works as the head: only an untied embedding is left
  // out.
  const double working = static_cast<double>(parameter_count()) - (shape.tied ? 0.0 : embedding);
  return 6.0 * working +
         12.0 * static_cast<double>(shape.n_layers * shape.n_heads * shape.head_dim * seq_len);
}

Result<ModelSpec> create(const Config& config, int64_t vocab_size) {
  LOCKSTEP_TRY(DecoderShape s, resolve_shape(config, vocab_size));
  ModelSpec spec{s, {}};
  spec.units.push_back({"embed", {{"model.embed_tokens.weight", {s.vocab_size, s.dim}, kInitStd}}});
  for (int64_t layer = 0; layer < s.n_layers; ++layer) spec.units.push_back(block_unit(s, layer));
  UnitSpec head{"head", {{"model.norm.weight", {s.dim}, 0}}};
  if (!s.tied) head.params.push_back({"lm_head.weight", {s.vocab_size, s.dim}, kInitStd});
  spec.units.push_back(std::move(head));
  return spec;
}

}  // namespace lockstep::model_spec
