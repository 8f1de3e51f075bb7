// Sampling from a checkpoint: token ids in, token ids out. One process, weights only.
#pragma once

#include <cstdint>
#include <functional>
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
};
// Calls `on_token` for every new id. Uses the newest valid checkpoint of the run in config's
// checkpoint folder. The same options give the same ids. Errors: kNotFound (no checkpoint),
// kConfig, kCorrupt.
Result<void> generate(FileSystem& file_system, const Config& config, const GenerateOptions& options,
                      const std::function<void(int64_t)>& on_token);

}  // namespace lockstep::core
