// Sampling from a checkpoint, or from a Hugging Face folder: token ids in, token ids out. One
// process, weights only. Prompts are worked on together, `together` at a time; each has its own
// random numbers (TokenStream), and on the CPU its tokens depend on no other prompt.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/file_system.h"
#include "config/config.h"
#include "core/train/model_weights.h"
#include "core/train/sampling/token_sampler.h"

namespace lockstep::core {

struct Prompt {
  std::vector<int64_t> ids;  // at least one
  int64_t count = 200;       // of new tokens, at most
};

struct GenerateOptions {
  std::vector<Prompt> prompts;
  Sampling sampling;
  int64_t vocab = 0;  // ids below are drawn: the tokenizer's, where the model pads; 0: all
  uint64_t seed = 42;
  std::vector<int64_t> ends;  // the first of these that is drawn ends a prompt's text
  int64_t together = 8;
  WeightSource weights;
};

// What was drawn for a prompt.
struct DrawnToken {
  size_t prompt;
  int64_t id;
  bool ends;  // it is one of GenerateOptions::ends
};
// Calls `on_token` for each; false ends everything. The same options give the same ids.
// Errors: kNotFound (no checkpoint), kConfig (a prompt and its new tokens are more
// than training.seq_len, or an id is outside of the vocabulary), kCorrupt.
Result<void> generate(FileSystem& file_system, const Config& config, const GenerateOptions& options,
                      const std::function<bool(const DrawnToken&)>& on_token);

}  // namespace lockstep::core
