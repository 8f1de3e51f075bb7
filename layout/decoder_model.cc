#include "layout/decoder_model.h"

#include <cmath>

#include "base/text.h"
#include "layout/lora.h"

namespace lockstep::layout {
namespace {

constexpr double kInitStd = 0.02;

// Collects the parameters of one unit.
class UnitBuilder {
 public:
  UnitBuilder(std::string name, std::string prefix)
      : unit_{std::move(name), {}, false}, prefix_(std::move(prefix)) {}
  void matrix(Role role, const std::string& name, int64_t rows, int64_t columns, double std) {
    unit_.params.push_back({prefix_ + name, {rows, columns}, std, role});
  }
  void norm(const DecoderShape& s, Role role, const char* name, int64_t n) {
    unit_.params.push_back({prefix_ + name, {n}, 0, role, s.unit_offset_norms ? 0.0 : 1.0});
  }
  void zeros(bool wanted, Role role, const char* name, int64_t n) {
    if (wanted) unit_.params.push_back({prefix_ + name, {n}, 0, role, 0.0});
  }
  UnitSpec take() { return std::move(unit_); }

 private:
  UnitSpec unit_;
  std::string prefix_;
};

// Projections back into the residual stream start smaller, so that its variance does not grow
// with depth.
double out_std(const DecoderShape& s) {
  return kInitStd / std::sqrt(2.0 * static_cast<double>(s.n_layers));
}

// A router and the experts, as each family names them.
void add_experts(const DecoderShape& s, UnitBuilder& b) {
  const bool mixtral = s.family == ModelFamily::kMixtral;
  const std::string at = mixtral ? "block_sparse_moe." : "mlp.";
  const auto name = [&](int64_t expert, const char* theirs, const char* qwens) {
    return text(at, "experts.", expert, ".", mixtral ? theirs : qwens, ".weight");
  };
  b.matrix(Role::kRouter, at + "gate.weight", s.experts, s.dim, kInitStd);
  for (int64_t e = 0; e < s.experts; ++e) {
    b.matrix(Role::kGate, name(e, "w1", "gate_proj"), s.ffn_dim, s.dim, kInitStd);
    b.matrix(Role::kUp, name(e, "w3", "up_proj"), s.ffn_dim, s.dim, kInitStd);
  }
  for (int64_t e = 0; e < s.experts; ++e)
    b.matrix(Role::kDown, name(e, "w2", "down_proj"), s.dim, s.ffn_dim, out_std(s));
}

UnitSpec llama_block(const DecoderShape& s, int64_t layer) {
  UnitBuilder b(text("layers.", layer), text("model.layers.", layer, "."));
  const int64_t q = s.n_heads * s.head_dim, kv = s.n_kv_heads * s.head_dim;
  b.norm(s, Role::kNorm1, "input_layernorm.weight", s.dim);
  b.matrix(Role::kQ, "self_attn.q_proj.weight", q, s.dim, kInitStd);
  b.matrix(Role::kK, "self_attn.k_proj.weight", kv, s.dim, kInitStd);
  b.matrix(Role::kV, "self_attn.v_proj.weight", kv, s.dim, kInitStd);
  b.matrix(Role::kO, "self_attn.o_proj.weight", s.dim, q, out_std(s));
  if (s.post_norms) b.norm(s, Role::kPostNorm1, "post_attention_layernorm.weight", s.dim);
  b.norm(s, Role::kNorm2,
         s.post_norms ? "pre_feedforward_layernorm.weight" : "post_attention_layernorm.weight",
         s.dim);
  if (s.experts > 0) {
    add_experts(s, b);
  } else {
    b.matrix(Role::kGate, "mlp.gate_proj.weight", s.ffn_dim, s.dim, kInitStd);
    b.matrix(Role::kUp, "mlp.up_proj.weight", s.ffn_dim, s.dim, kInitStd);
    b.matrix(Role::kDown, "mlp.down_proj.weight", s.dim, s.ffn_dim, out_std(s));
  }
  if (s.post_norms) b.norm(s, Role::kPostNorm2, "post_feedforward_layernorm.weight", s.dim);
  b.zeros(s.qkv_bias, Role::kQBias, "self_attn.q_proj.bias", q);
  b.zeros(s.qkv_bias, Role::kKBias, "self_attn.k_proj.bias", kv);
  b.zeros(s.qkv_bias, Role::kVBias, "self_attn.v_proj.bias", kv);
  b.zeros(s.o_bias, Role::kOBias, "self_attn.o_proj.bias", s.dim);
  b.zeros(s.mlp_bias, Role::kGateBias, "mlp.gate_proj.bias", s.ffn_dim);
  b.zeros(s.mlp_bias, Role::kUpBias, "mlp.up_proj.bias", s.ffn_dim);
  b.zeros(s.mlp_bias, Role::kDownBias, "mlp.down_proj.bias", s.dim);
  if (s.qk_norm) {
    b.norm(s, Role::kQNorm, "self_attn.q_norm.weight", s.head_dim);
    b.norm(s, Role::kKNorm, "self_attn.k_norm.weight", s.head_dim);
  }
  return b.take();
}

// Its matrices are [in, out], and stay so: a tile read from a file is a tile of the parameter.
UnitSpec gpt2_block(const DecoderShape& s, int64_t layer) {
  UnitBuilder b(text("layers.", layer), text("transformer.h.", layer, "."));
  b.norm(s, Role::kNorm1, "ln_1.weight", s.dim);
  b.zeros(true, Role::kNorm1Bias, "ln_1.bias", s.dim);
  b.matrix(Role::kQ, "attn.c_attn.weight", s.dim, 3 * s.dim, kInitStd);
  b.zeros(true, Role::kQBias, "attn.c_attn.bias", 3 * s.dim);
  b.matrix(Role::kO, "attn.c_proj.weight", s.dim, s.dim, out_std(s));
  b.zeros(true, Role::kOBias, "attn.c_proj.bias", s.dim);
  b.norm(s, Role::kNorm2, "ln_2.weight", s.dim);
  b.zeros(true, Role::kNorm2Bias, "ln_2.bias", s.dim);
  b.matrix(Role::kUp, "mlp.c_fc.weight", s.dim, s.ffn_dim, kInitStd);
  b.zeros(true, Role::kUpBias, "mlp.c_fc.bias", s.ffn_dim);
  b.matrix(Role::kDown, "mlp.c_proj.weight", s.ffn_dim, s.dim, out_std(s));
  b.zeros(true, Role::kDownBias, "mlp.c_proj.bias", s.dim);
  return b.take();
}

// One square matrix, so that a run's memory is that of its linear layers. Plain variance through
// the stack.
UnitSpec linear_layer(const DecoderShape& s, int64_t layer) {
  UnitBuilder b(text("layers.", layer), text("model.layers.", layer, "."));
  b.matrix(Role::kUp, "linear.weight", s.dim, s.dim, 1.0 / std::sqrt(static_cast<double>(s.dim)));
  return b.take();
}

UnitSpec layer_unit(const DecoderShape& s, int64_t layer) {
  if (s.family == ModelFamily::kLinear) return linear_layer(s, layer);
  return s.gpt2 ? gpt2_block(s, layer) : llama_block(s, layer);
}

UnitSpec embedding_unit(const DecoderShape& s) {
  UnitBuilder b("embed", s.gpt2 ? "transformer." : "model.");
  b.matrix(Role::kTokens, s.gpt2 ? "wte.weight" : "embed_tokens.weight", s.vocab_size, s.dim,
           kInitStd);
  if (s.learned_positions > 0)
    b.matrix(Role::kPositions, "wpe.weight", s.learned_positions, s.dim, kInitStd);
  return b.take();
}

UnitSpec head_unit(const DecoderShape& s) {
  UnitBuilder b("head", "");
  b.norm(s, Role::kNorm1, s.gpt2 ? "transformer.ln_f.weight" : "model.norm.weight", s.dim);
  b.zeros(s.gpt2, Role::kNorm1Bias, "transformer.ln_f.bias", s.dim);
  if (!s.tied) b.matrix(Role::kHead, "lm_head.weight", s.vocab_size, s.dim, kInitStd);
  return b.take();
}

Result<void> check_heads(const DecoderShape& s) {
  if (s.head_dim % 2 != 0 && s.learned_positions == 0)
    return Error{
        Code::kConfig,
        text("the head dimension is ", s.head_dim,
             "; rotary embeddings need an even one: change model.dim, n_heads or head_dim")};
  if (s.n_heads % s.n_kv_heads != 0)
    return Error{Code::kConfig, text("model.n_heads = ", s.n_heads,
                                     " is not a multiple of model.n_kv_heads = ", s.n_kv_heads)};
  return {};
}

}  // namespace

Result<DecoderShape> shape_of_keys(const Config& config, int64_t data_vocab_size) {
  const Config::Model m = resolved(config).model;
  if (m.name != ModelFamily::kLlama && m.name != ModelFamily::kLinear)
    return Error{
        Code::kConfig,
        text("model.name = ", m.name,
             " needs model.hf_assets_path: a local folder with the config.json of the model")};
  DecoderShape s;
  s.family = m.name;
  s.dim = m.dim;
  s.n_layers = m.n_layers;
  s.n_heads = m.n_heads;
  s.n_kv_heads = m.n_kv_heads;
  s.head_dim = m.head_dim;
  s.ffn_dim = m.ffn_dim;
  s.vocab_size = m.vocab_size > 0 ? m.vocab_size : data_vocab_size;
  s.norm_eps = m.norm_eps;
  s.rope_theta = m.rope_theta;
  s.tied = m.tie_word_embeddings;
  if (s.head_dim * s.n_heads != s.dim && config.model.head_dim == 0)
    return Error{Code::kConfig,
                 text("model.dim = ", s.dim, " is not a multiple of model.n_heads = ", s.n_heads,
                      "; change one, or give model.head_dim")};
  if (s.vocab_size <= 0)
    return Error{Code::kConfig,
                 "model.vocab_size is 0 and there is no data set to take it from; give --data.path "
                 "or --model.vocab_size"};
  return s;
}

ModelSpec create(const DecoderShape& shape, const Config::Lora& lora) {
  ModelSpec spec{shape, {}, {}};
  spec.units.push_back(embedding_unit(shape));
  for (int64_t layer = 0; layer < shape.n_layers; ++layer)
    spec.units.push_back(layer_unit(shape, layer));
  spec.units.push_back(head_unit(shape));
  if (lora.rank > 0) add_adapters(lora, spec);
  return spec;
}

Result<ModelSpec> create_checked(const DecoderShape& shape, const Config::Lora& lora) {
  LOCKSTEP_RETURN_IF_ERROR(check_heads(shape));
  LOCKSTEP_RETURN_IF_ERROR(check_modules(lora, create(shape)));
  return create(shape, lora);
}

}  // namespace lockstep::layout
