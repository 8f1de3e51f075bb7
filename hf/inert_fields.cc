#include "hf/inert_fields.h"

#include <algorithm>
#include <map>
#include <vector>

namespace lockstep::hf {
namespace {

using nlohmann::json;

// Names, token ids, generation, initial values, classification heads, and what a cache or a library
// wants to know.
constexpr const char* kPlainFields[] = {
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_attn_implementation_internal",
    "_commit_hash",
    "_experts_implementation",
    "_experts_implementation_internal",
    "_name_or_path",
    "architectures",
    "bad_words_ids",
    "begin_suppress_tokens",
    "bos_token_id",
    "cache_implementation",
    "chunk_size_feed_forward",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "dtype",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "eos_token_id",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "gradient_checkpointing",
    "id2label",
    "initializer_range",
    "is_composition",
    "label2id",
    "length_penalty",
    "max_length",
    "max_position_embeddings",
    "min_length",
    "model_type",
    "n_ctx",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_scores",
    "pad_token_id",
    "prefix",
    "problem_type",
    "remove_invalid_values",
    "repetition_penalty",
    "return_dict",
    "return_dict_in_generate",
    "sep_token_id",
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "transformers_version",
    "typical_p",
    "use_bfloat16",
    "use_cache",
};

// Those of other tools, and those that sound as if they changed something.
constexpr const char* kNotedFields[] = {
    "_flash_attn_2_enabled",
    "_from_model_config",
    "_num_labels",
    "attn_implementation",
    "auto_map",
    "classifier_bias",
    "classifier_dropout",
    "is_llama_config",
    "max_sequence_length",
    "model_max_length",
    "num_labels",
    "output_past",
    "reorder_and_upcast_attn",
    "tokenizer_model_max_length",
    "tokenizer_name",
    "transformers.js_config",
    "unsloth_fixed",
    "unsloth_training",
    "unsloth_use_gradient_checkpointing",
    "unsloth_version",
    "use_flash_attention_2",
    "use_flash_attn",
    "vocab_file",
};

// They change nothing with one of these values, which say that the thing is not there. A family
// that has the thing reads the field, and does not ask here.
const std::map<std::string, std::vector<json>>& absent_things() {
  static const std::map<std::string, std::vector<json>> fields = {
      {"attention_bias", {false}},
      {"embedding_multiplier", {1, 1.0}},
      {"logit_scale", {1, 1.0}},
      {"mlp_bias", {false}},
      {"num_experts", {0}},
      {"num_local_experts", {0}},
      {"pretraining_tp", {1}},
      {"qk_layernorm", {false}},
      {"residual_multiplier", {1, 1.0}},
      {"rope_interleaved", {false}},
      {"use_qk_norm", {false}},
      {"use_sliding_window", {false}},
  };
  return fields;
}

template <size_t N>
bool is_one_of(const char* const (&names)[N], const std::string& name) {
  return std::any_of(std::begin(names), std::end(names),
                     [&](const char* each) { return name == each; });
}

}  // namespace

Inert inert_field(const std::string& name, const json& value) {
  if (is_one_of(kPlainFields, name)) return Inert::kPlain;
  if (is_one_of(kNotedFields, name)) return Inert::kNoted;
  // transformers 5 does not read it; versions before cut the same products into as many parts.
  if (name == "pretraining_tp" && value != 1 && value.is_number_integer()) return Inert::kNoted;
  const auto found = absent_things().find(name);
  if (found == absent_things().end()) return Inert::kNo;
  const auto& values = found->second;
  const bool absent = std::find(values.begin(), values.end(), value) != values.end();
  return absent ? Inert::kPlain : Inert::kNo;
}

}  // namespace lockstep::hf
