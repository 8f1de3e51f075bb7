// A Hugging Face folder's config.json -> DecoderShape: llama, mistral, qwen2, qwen3, gemma2,
// gemma3_text, mixtral, qwen3_moe, gpt2; both spellings (rope_theta, rope_scaling, torch_dtype; and
// transformers 5's rope_parameters, dtype). Rope types: default, linear, dynamic, yarn, llama3.
// Every field is either read, or checked to have the one value that is implemented, or in the table
// of fields that do not change the arithmetic (hf/inert_fields.h), or named by the user; any others
// are an error that names them and their values. Where two fields contradict each other, either a
// warning says which is taken, which is the one that transformers takes, or it is an error.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_system.h"
#include "base/result.h"
#include "layout/model_spec.h"

namespace lockstep::hf {

struct HfConfig {
  layout::DecoderShape shape;
  std::vector<std::string> warnings;  // what is done otherwise, or passed over
};

// `where` names the text in messages. `ignored`: fields that the user knows to be inert
// (model.ignore_fields). Errors: kConfig, also when one of them says what the model is.
Result<HfConfig> parse_hf_config(std::string_view json, const std::string& where,
                                 const std::vector<std::string>& ignored = {});
// folder/config.json. Errors: kConfig, also when there is none.
Result<HfConfig> read_hf_config(FileSystem& file_system, const std::filesystem::path& folder,
                                const std::vector<std::string>& ignored = {});

// What to do where there is no such folder: nothing is downloaded; for the name of a model on the
// Hub ("Qwen/Qwen3-0.6B") with the command that makes the folder.
std::string no_such_folder(const std::filesystem::path& folder);

// The config.json of a model that has none, because its sizes came from the [model] keys (llama).
std::string hf_config_json(const layout::DecoderShape& shape, FloatType dtype, int64_t seq_len);

}  // namespace lockstep::hf
