#include "hf/hf_config.h"

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "base/text.h"
#include "hf/config_fields.h"
#include "hf/inert_fields.h"
#include "hf/rope_config.h"

namespace lockstep::hf {
namespace {

using nlohmann::json;

// A block's parameters are listed before one of them is read, those of each expert alone. What is
// known of: 126 blocks (Llama 3.1 405B), 94 with 128 experts each (Qwen3 235B).
constexpr int64_t kMostBlocks = 4096;
constexpr int64_t kMostExperts = 4096;  // core's kernels allow as many
constexpr int64_t kMostExpertsInAll = int64_t{1} << 17;

int64_t read_blocks(Fields& f, const char* name) { return f.size(name, {}, 1, kMostBlocks); }

void all_layers_within(layout::DecoderShape& s, int64_t window) {
  s.windows.assign(static_cast<size_t>(s.n_layers), window);
}

// null: no window; absent: transformers' default.
void read_mistral_window(Fields& f, layout::DecoderShape& s) {
  if (f.is_null("sliding_window")) return;
  all_layers_within(s, f.size("sliding_window", 4096));
}

// What layer_types says of a layer; the first wrong word is kept.
bool listed_as_sliding(Fields& f, const layout::DecoderShape& s, int64_t layer) {
  const json& types = f.at("layer_types");
  if (!types.is_array() || types.size() != static_cast<size_t>(s.n_layers)) {
    f.fail("layer_types", "must name every layer's attention");
    return false;
  }
  const json& type = types[static_cast<size_t>(layer)];
  if (type != "full_attention" && type != "sliding_attention")
    f.fail("layer_types",
           "has another value; only full_attention and sliding_attention are supported");
  return type == "sliding_attention";
}

// qwen: layer_types, else the layers from max_window_layers on; and only with use_sliding_window.
void read_qwen_windows(Fields& f, layout::DecoderShape& s) {
  const bool used = f.flag("use_sliding_window", false);
  const int64_t window = f.size("sliding_window", 4096);
  const int64_t first = f.size("max_window_layers", 28, 0);
  const bool listed = f.has("layer_types");
  if (!used && !listed) return;
  all_layers_within(s, 0);
  for (int64_t layer = 0; layer < s.n_layers; ++layer) {
    const bool slides = listed ? listed_as_sliding(f, s, layer) : used && layer >= first;
    if (slides && !used)
      return f.fail("layer_types", "has sliding_attention, but use_sliding_window is false");
    if (slides) s.windows[static_cast<size_t>(layer)] = window;
  }
}

// gemma: layer_types, else all but every `pattern`-th layer.
void read_gemma_windows(Fields& f, layout::DecoderShape& s, int64_t pattern) {
  const int64_t window = f.size("sliding_window", 4096);
  const bool listed = f.has("layer_types");
  all_layers_within(s, 0);
  for (int64_t layer = 0; layer < s.n_layers; ++layer)
    if (listed ? listed_as_sliding(f, s, layer) : (layer + 1) % pattern != 0)
      s.windows[static_cast<size_t>(layer)] = window;
}

// null: none; absent: transformers' default.
double read_cap(Fields& f, const char* name, double otherwise) {
  return f.is_null(name) || (otherwise == 0 && !f.has(name)) ? 0 : f.positive(name, otherwise);
}

Result<void> read_gemma(Fields& f, layout::DecoderShape& s) {
  const bool third = s.family == ModelFamily::kGemma3;
  s.dim = f.size("hidden_size");
  s.n_layers = read_blocks(f, "num_hidden_layers");
  s.n_heads = f.size("num_attention_heads");
  s.n_kv_heads = f.size("num_key_value_heads", 4);
  s.head_dim = f.size("head_dim", 256);
  s.ffn_dim = f.size("intermediate_size");
  s.vocab_size = f.size("vocab_size");
  s.norm_eps = f.positive("rms_norm_eps", 1e-6);
  s.tied = f.flag("tie_word_embeddings", true);
  s.qkv_bias = s.o_bias = f.flag("attention_bias", false);
  for (const char* name : {"hidden_activation", "hidden_act"}) f.only(name, {"gelu_pytorch_tanh"});
  f.only("use_bidirectional_attention", {false});
  for (const char* name : {"sliding_window_size", "_sliding_window_pattern"})
    f.has(name);  // other names of what is read, which transformers passes over
  s.unit_offset_norms = s.post_norms = s.geglu = true;
  s.qk_norm = third;
  s.embedding_scale = std::sqrt(static_cast<double>(s.dim));
  s.query_scalar = f.positive("query_pre_attn_scalar", 256.0);
  if (third)
    f.only("attn_logit_softcapping", {});  // transformers has the field and does not apply it
  else
    s.score_cap = read_cap(f, "attn_logit_softcapping", 50.0);
  s.logit_cap = read_cap(f, "final_logit_softcapping", third ? 0.0 : 30.0);
  read_gemma_windows(f, s, third ? f.size("sliding_window_pattern", 6) : 2);
  return third ? read_layered_rope(f, s) : read_rope(f, s, 1e4);
}

// transformers adds the loss to what it trains on where output_router_logits is true.
void read_experts(Fields& f, layout::DecoderShape& s) {
  const bool mixtral = s.family == ModelFamily::kMixtral;
  const char* const count = f.has("num_experts") ? "num_experts" : "num_local_experts";
  s.experts = f.size(count, mixtral ? 8 : 128);
  if (f.has("num_experts") && f.has("num_local_experts") &&
      f.at("num_experts") != f.at("num_local_experts"))
    f.fail("num_experts", text("contradicts num_local_experts = ", f.shown("num_local_experts"),
                               ": both are the number of experts; take one of them out"));
  s.experts_per_token = f.size("num_experts_per_tok", mixtral ? 2 : 8);
  if (s.experts > kMostExperts) f.fail(count, text("must be at most ", kMostExperts));
  if (s.experts * s.n_layers > kMostExpertsInAll)
    f.fail(count, text("in each of ", s.n_layers, " layers: all layers together may have at most ",
                       kMostExpertsInAll));
  if (s.experts_per_token > s.experts)
    f.fail("num_experts_per_tok", text("is more than ", count, " = ", s.experts));
  s.normed_routing = mixtral || f.flag("norm_topk_prob", false);
  const double coefficient = f.has("router_aux_loss_coef") && f.at("router_aux_loss_coef") == 0
                                 ? 0.0
                                 : f.positive("router_aux_loss_coef", 0.001);
  s.balance_loss = f.flag("output_router_logits", false) ? coefficient : 0.0;
  if (mixtral) return f.only("router_jitter_noise", {0, 0.0});
  s.ffn_dim = f.size("moe_intermediate_size", 768);
  f.only("decoder_sparse_step", {1});  // else some blocks have no experts
  f.only("mlp_only_layers", {json::array()});
  f.has("max_window_layers");  // passed over, as in transformers
  if (f.flag("use_sliding_window", false))
    all_layers_within(s, f.size("sliding_window", 4096));
  else
    f.has("sliding_window");
}

int64_t default_kv_heads(const layout::DecoderShape& s) {
  switch (s.family) {
    case ModelFamily::kMistral:
    case ModelFamily::kMixtral: return 8;
    case ModelFamily::kQwen3Moe: return 4;
    default: return s.n_heads;
  }
}

Result<void> read_llama_like(Fields& f, layout::DecoderShape& s) {
  const ModelFamily family = s.family;
  const bool third_qwen = family == ModelFamily::kQwen3 || family == ModelFamily::kQwen3Moe;
  s.dim = f.size("hidden_size");
  s.n_layers = read_blocks(f, "num_hidden_layers");
  s.n_heads = f.size("num_attention_heads");
  s.n_kv_heads = f.is_null("num_key_value_heads")  // as older versions of transformers save it
                     ? s.n_heads
                     : f.size("num_key_value_heads", default_kv_heads(s));
  s.ffn_dim = f.size("intermediate_size");
  s.vocab_size = f.size("vocab_size");
  if (!f.has("head_dim") && family != ModelFamily::kQwen3 && s.dim % s.n_heads != 0)
    f.fail("num_attention_heads", text("does not divide hidden_size = ", s.dim));
  s.head_dim = f.size(
      "head_dim", family == ModelFamily::kQwen3 ? 128 : std::max<int64_t>(1, s.dim / s.n_heads));
  s.norm_eps = f.positive("rms_norm_eps", family == ModelFamily::kMixtral ? 1e-5 : 1e-6);
  s.tied = f.flag("tie_word_embeddings", false);
  f.only("hidden_act", {"silu", "swish"});
  if (family == ModelFamily::kLlama || third_qwen)
    s.qkv_bias = s.o_bias = f.flag("attention_bias", false);
  if (family == ModelFamily::kLlama) s.mlp_bias = f.flag("mlp_bias", false);
  if (family == ModelFamily::kMistral) read_mistral_window(f, s);
  if (family == ModelFamily::kMixtral && f.has("sliding_window")) read_mistral_window(f, s);
  if (family == ModelFamily::kMixtral || family == ModelFamily::kQwen3Moe) read_experts(f, s);
  if (family == ModelFamily::kQwen2 || family == ModelFamily::kQwen3) read_qwen_windows(f, s);
  if (family == ModelFamily::kQwen2) {
    s.qkv_bias = true;
    f.only("use_mrope", {false});  // true: positions in three dimensions, of images
  }
  s.qk_norm = third_qwen;
  return read_rope(f, s, family == ModelFamily::kMixtral ? 1e6 : 1e4);
}

void read_gpt2(Fields& f, layout::DecoderShape& s) {
  s.gpt2 = s.qkv_bias = s.o_bias = s.mlp_bias = true;
  s.dim = f.size("n_embd");
  s.n_layers = read_blocks(f, "n_layer");
  s.n_heads = s.n_kv_heads = f.size("n_head");
  if (s.dim % s.n_heads != 0) f.fail("n_head", text("does not divide n_embd = ", s.dim));
  s.head_dim = std::max<int64_t>(1, s.dim / s.n_heads);
  s.ffn_dim = f.size("n_inner", 4 * s.dim);
  s.vocab_size = f.size("vocab_size");
  const char* const other_name = "max_position_embeddings";
  s.learned_positions =
      f.size(f.has(other_name) && !f.has("n_positions") ? other_name : "n_positions");
  if (f.has(other_name) && f.has("n_positions") && f.at(other_name) != f.at("n_positions"))
    f.fail("n_positions", text("contradicts max_position_embeddings = ", f.shown(other_name),
                               ": both are the number of positions; take one of them out"));
  s.norm_eps = f.positive("layer_norm_epsilon", 1e-5);
  s.tied = f.flag("tie_word_embeddings", true);
  f.only("activation_function", {"gelu_new", "gelu_pytorch_tanh"});
  f.only("scale_attn_weights", {true});
  f.only("scale_attn_by_inverse_layer_idx", {false});
}

// Dropout belongs to a training recipe, not to the model: said, and left out.
void note_dropout(Fields& f, std::vector<std::string>& warnings) {
  for (const char* name : {"attention_dropout", "attn_pdrop", "embd_pdrop", "resid_pdrop"})
    if (f.has(name) && f.at(name) != 0)
      warnings.push_back(text(f.where(), ": ", name, " = ", f.at(name).dump(),
                              " is not applied: training runs without dropout"));
}

std::string listed(const std::vector<std::string>& names, const char* between) {
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : between) + name;
  return all;
}

// The fields that no reader asked for: inert ones, and those of model.ignore_fields, are passed
// over with one note. Errors: kConfig, naming all others.
Result<void> pass_over(const Fields& f, const std::vector<std::string>& ignored,
                       std::vector<std::string>& warnings) {
  for (const std::string& name : ignored)
    if (f.was_read(name))
      return Error{Code::kConfig, text("model.ignore_fields: ", name, " of ", f.where(),
                                       " says what the model is, so it cannot be passed over")};
  std::vector<std::string> noted, unknown;
  for (const std::string& name : f.unread()) {
    const Inert kind = inert_field(name, f.at(name.c_str()));
    if (kind == Inert::kPlain) continue;
    const bool asked = std::find(ignored.begin(), ignored.end(), name) != ignored.end();
    (asked || kind == Inert::kNoted ? noted : unknown).push_back(name);
  }
  if (!noted.empty())
    warnings.push_back(
        text(f.where(), ": passed over, for they change no arithmetic: ", listed(noted, ", ")));
  if (unknown.empty()) return {};
  Error error = f.unsupported(unknown);
  error.message += text("; where they change no arithmetic, --model.ignore_fields ",
                        listed(unknown, ","), " passes over them");
  return error;
}

}  // namespace

Result<HfConfig> parse_hf_config(std::string_view contents, const std::string& where,
                                 const std::vector<std::string>& ignored) {
  const json object = parse_json(contents, /*allow_exceptions=*/false);
  if (!object.is_object()) return Error{Code::kConfig, text(where, " is not a JSON object")};
  HfConfig hf;
  Fields f(object, where);
  layout::DecoderShape& s = hf.shape;
  const std::string type = f.word("model_type", "");
  s.family = choice_of<ModelFamily>(type).value_or(ModelFamily::kLinear);
  switch (s.family) {
    case ModelFamily::kGpt2: read_gpt2(f, s); break;
    case ModelFamily::kLlama:
    case ModelFamily::kMistral:
    case ModelFamily::kQwen2:
    case ModelFamily::kQwen3:
    case ModelFamily::kMixtral:
    case ModelFamily::kQwen3Moe: LOCKSTEP_RETURN_IF_ERROR(read_llama_like(f, s)); break;
    case ModelFamily::kGemma2:
    case ModelFamily::kGemma3: LOCKSTEP_RETURN_IF_ERROR(read_gemma(f, s)); break;
    case ModelFamily::kLinear:
      return Error{
          Code::kConfig,
          text(where, ": model_type = \"", type,
               "\" is not supported; llama, mistral, qwen2, qwen3, gemma2, gemma3_text, "
               "mixtral, qwen3_moe and "
               "gpt2 are",
               type == "gemma3" ? "; for gemma3 use the text model alone, which is its text_config"
                                : "")};
  }
  note_dropout(f, hf.warnings);
  for (const char* name : {"add_cross_attention", "is_encoder_decoder", "tie_encoder_decoder"})
    f.only(name, {false});
  f.only("is_decoder", {false, true});
  f.only("pruned_heads", {json::object()});
  f.only("cross_attention_hidden_size", {});
  LOCKSTEP_RETURN_IF_ERROR(f.status());
  LOCKSTEP_RETURN_IF_ERROR(pass_over(f, ignored, hf.warnings));
  hf.warnings.insert(hf.warnings.end(), f.warnings().begin(), f.warnings().end());
  return hf;
}

std::string no_such_folder(const std::filesystem::path& folder) {
  const std::string name = folder.string();
  const size_t slash = name.find('/');
  const bool of_hub = slash != 0 && slash != name.npos && slash + 1 < name.size() &&
                      name.find('/', slash + 1) == name.npos && name.front() != '.';
  const std::string there_is_none =
      text(name, ": there is no such folder, and Lockstep downloads nothing");
  if (!of_hub) return there_is_none + "; give a folder with config.json and *.safetensors";
  return text(there_is_none,
              "; to get the folder of a model on the Hugging Face Hub, run: hf download ", name,
              " --local-dir ", name);
}

Result<HfConfig> read_hf_config(FileSystem& file_system, const std::filesystem::path& folder,
                                const std::vector<std::string>& ignored) {
  if (!file_system.exists(folder))
    return Error{Code::kConfig, text("model.hf_assets_path = ", no_such_folder(folder))};
  const std::filesystem::path path = folder / "config.json";
  const auto contents = read_file(file_system, path);
  if (!contents.ok())
    return Error{Code::kConfig,
                 text(contents.error().message,
                      "; model.hf_assets_path must be a local folder with config.json and "
                      "*.safetensors")};
  if (is_lfs_pointer(contents.value())) return lfs_pointer_error(path);
  return parse_hf_config(contents.value(), path.string(), ignored);
}

std::string hf_config_json(const layout::DecoderShape& s, FloatType dtype, int64_t seq_len) {
  const nlohmann::ordered_json object{{"architectures", {"LlamaForCausalLM"}},
                                      {"model_type", s.family},
                                      {"hidden_size", s.dim},
                                      {"num_hidden_layers", s.n_layers},
                                      {"num_attention_heads", s.n_heads},
                                      {"num_key_value_heads", s.n_kv_heads},
                                      {"head_dim", s.head_dim},
                                      {"intermediate_size", s.ffn_dim},
                                      {"vocab_size", s.vocab_size},
                                      {"max_position_embeddings", seq_len},
                                      {"rms_norm_eps", s.norm_eps},
                                      {"rope_theta", s.rope_theta},
                                      {"tie_word_embeddings", s.tied},
                                      {"hidden_act", "silu"},
                                      {"bos_token_id", nullptr},
                                      {"eos_token_id", nullptr},
                                      {"torch_dtype", dtype}};
  return object.dump(2) + "\n";
}

}  // namespace lockstep::hf
