#include "hf/configured_model.h"

#include "base/file_system.h"
#include "base/text.h"
#include "hf/hf_config.h"
#include "layout/decoder_model.h"

namespace lockstep::hf {
namespace {

// A key that was given (it differs from the default) must say what config.json says.
Result<void> check_keys(const Config::Model& given, const layout::DecoderShape& shape) {
  const Config::Model defaults;
  Config::Model folder = defaults;
  layout::write_keys(shape, folder);
  std::string differing;
  auto compare = [&](const char* key, const auto& mine, const auto& standard, const auto& theirs) {
    if (mine != standard && mine != theirs)
      differing += text("\n  model.", key, " = ", mine, ", and ", theirs, " in config.json");
  };
  compare("name", given.name, defaults.name, folder.name);
  compare("dim", given.dim, defaults.dim, folder.dim);
  compare("n_layers", given.n_layers, defaults.n_layers, folder.n_layers);
  compare("n_heads", given.n_heads, defaults.n_heads, folder.n_heads);
  compare("n_kv_heads", given.n_kv_heads, defaults.n_kv_heads, folder.n_kv_heads);
  compare("head_dim", given.head_dim, defaults.head_dim, folder.head_dim);
  compare("ffn_dim", given.ffn_dim, defaults.ffn_dim, folder.ffn_dim);
  compare("vocab_size", given.vocab_size, defaults.vocab_size, folder.vocab_size);
  compare("norm_eps", given.norm_eps, defaults.norm_eps, folder.norm_eps);
  compare("rope_theta", given.rope_theta, defaults.rope_theta, folder.rope_theta);
  compare("tie_word_embeddings", given.tie_word_embeddings, defaults.tie_word_embeddings,
          folder.tie_word_embeddings);
  if (differing.empty()) return {};
  return Error{
      Code::kConfig,
      text("model.hf_assets_path defines the model, so leave these keys out, or make them equal:",
           differing)};
}

Result<HfConfig> config_of_folder(const Config& config) {
  LOCKSTEP_TRY(HfConfig hf, read_hf_config(posix_file_system(), config.model.hf_assets_path,
                                           config.model.ignore_fields));
  LOCKSTEP_RETURN_IF_ERROR(check_keys(config.model, hf.shape));
  const int64_t positions = hf.shape.learned_positions;
  if (positions > 0 && config.training.seq_len > positions)
    return Error{Code::kConfig, text("training.seq_len = ", config.training.seq_len,
                                     " is more than the positions of the model: ", positions)};
  return hf;
}

}  // namespace

Result<layout::ModelSpec> configured_model(const Config& config, int64_t vocab_size) {
  HfConfig hf;
  if (config.model.hf_assets_path.empty()) {
    LOCKSTEP_TRY(hf.shape, layout::shape_of_keys(config, vocab_size));
  } else {
    LOCKSTEP_TRY(hf, config_of_folder(config));
  }
  LOCKSTEP_TRY(layout::ModelSpec spec, layout::create_checked(hf.shape, config.lora));
  spec.notes = std::move(hf.warnings);
  return spec;
}

}  // namespace lockstep::hf
