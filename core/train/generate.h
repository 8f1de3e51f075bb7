// Sampling from a checkpoint, or from a Hugging Face folder: token ids in, token ids out. One
// process, weights only.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "config/config.h"

namespace lockstep::core {

struct GenerateOptions {
  std::vector<int64_t> prompt;  // at least one id
  int64_t count = 200;
  double temperature = 0.8;  // 0: always the likeliest
  int64_t top_k = 0;         // 0: all
  int64_t vocab = 0;         // ids below are drawn: the tokenizer's, where the model pads; 0: all
  uint64_t seed = 42;
  std::vector<int64_t> ends;  // the first of these that is drawn ends it, and is not given
  bool of_folder = false;     // the weights of model.hf_assets_path, and no checkpoint
  std::string checkpoint;     // this one; "": the newest valid one in config's checkpoint folder
};
// Calls `on_token` for every new id; false ends it. Tokens further back than training.seq_len are
// not looked at. The same options give the same ids. Errors: kNotFound (no checkpoint), kConfig,
// kCorrupt.
Result<void> generate(FileSystem& file_system, const Config& config, const GenerateOptions& options,
                      const std::function<bool(int64_t)>& on_token);

}  // namespace lockstep::core
