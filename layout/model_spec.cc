#include "layout/model_spec.h"

#include "base/text.h"

namespace lockstep::layout {

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

int64_t UnitSpec::elements() const {
  int64_t n = 0;
  for (const ParamSpec& p : params) n += p.elements();
  return n;
}

int UnitSpec::find(Role role) const {
  for (size_t i = 0; i < params.size(); ++i)
    if (params[i].role == role) return static_cast<int>(i);
  return -1;
}

int64_t ModelSpec::parameter_count() const {
  int64_t n = 0;
  for (const UnitSpec& u : units) n += u.elements();
  return n;
}

int64_t ModelSpec::trained_count() const {
  int64_t n = 0;
  for (const UnitSpec& u : units) n += u.frozen ? 0 : u.elements();
  return n;
}

int64_t ModelSpec::active_count() const {
  const int64_t idle = shape.experts - shape.experts_per_token;
  return parameter_count() - shape.n_layers * idle * 3 * shape.dim * shape.ffn_dim;
}

int64_t ModelSpec::tiles() const {
  int64_t n = 0;
  for (const UnitSpec& u : units) n += u.tiles();
  return n;
}

double ModelSpec::flops_per_token(int64_t seq_len) const {
  // A tied weight is counted once and works as the head: only what is looked up alone is left out.
  const int64_t looked_up = (shape.tied ? 0 : shape.vocab_size) + shape.learned_positions;
  const double working = static_cast<double>(active_count() - looked_up * shape.dim);
  // A matrix product forward, and one backward for each of its factors that needs a gradient.
  const double products =
      adapted() ? 4.0 * working + 2.0 * static_cast<double>(trained_count()) : 6.0 * working;
  if (shape.family == ModelFamily::kLinear) return products;
  return products +
         12.0 * static_cast<double>(shape.n_layers * shape.n_heads * shape.head_dim * seq_len);
}

void write_keys(const DecoderShape& s, Config::Model& keys) {
  keys.name = s.family;
  keys.dim = s.dim;
  keys.n_layers = s.n_layers;
  keys.n_heads = s.n_heads;
  keys.n_kv_heads = s.n_kv_heads;
  keys.head_dim = s.head_dim;
  keys.ffn_dim = s.ffn_dim;
  keys.vocab_size = s.vocab_size;
  keys.norm_eps = s.norm_eps;
  keys.rope_theta = s.rope_theta;
  keys.tie_word_embeddings = s.tied;
}

namespace {

// Of a type that the text below has no place for.
std::string rope_text(const RopeScaling& r) {
  switch (r.type) {
    case RopeType::kDefault:
    case RopeType::kLlama3: return "";
    case RopeType::kLinear: return " rope=linear";
    case RopeType::kDynamic: return " rope=dynamic";
    case RopeType::kYarn:
      return text(" rope=yarn/", r.beta_fast, "/", r.beta_slow, "/", r.attention_factor, "/",
                  r.truncate);
  }
  return "";
}

// What gemma has beyond the others.
std::string gemma_text(const DecoderShape& s) {
  if (!s.unit_offset_norms && !s.post_norms && !s.geglu && s.embedding_scale == 1) return "";
  return text(" gemma=", s.unit_offset_norms, s.post_norms, s.geglu, " scale=", s.embedding_scale,
              " caps=", s.score_cap, "/", s.logit_cap, " query=", s.query_scalar,
              " local_rope=", s.local_rope_theta);
}

std::string experts_text(const DecoderShape& s) {
  if (s.experts == 0) return "";
  return text(" experts=", s.experts_per_token, "/", s.experts, " normed=", s.normed_routing,
              " balance=", s.balance_loss);
}

}  // namespace

std::string architecture_text(const DecoderShape& s) {
  const RopeScaling& r = s.rope_scaling;
  std::string windows;
  for (int64_t w : s.windows) windows += text(windows.empty() ? "" : ",", w);
  return text(s.family, " positions=", s.learned_positions, " bias=", s.qkv_bias, s.o_bias,
              s.mlp_bias, " qk_norm=", s.qk_norm, " rope_scaling=", r.factor, "/",
              r.low_freq_factor, "/", r.high_freq_factor, "/", r.original_positions,
              " windows=", windows, rope_text(r), gemma_text(s), experts_text(s));
}

}  // namespace lockstep::layout
