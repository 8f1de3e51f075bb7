// Runs lockstep-worker for prompts, and puts their texts together as the tokens come.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/generate/sampled_model.h"
#include "cli/generate/text_stream.h"

namespace lockstep::cli {

struct SamplingOptions {
  int64_t tokens = 0;  // 0: not given, kDefaultTokens or what the model's context has room for
  int64_t top_k = 0, seed = 42, together = 8, threads = 0;
  double temperature = 0.8, top_p = 1;
  bool fewer = false;  // draw fewer tokens where the context has no room for all of them
  std::vector<std::string> stops;
  std::vector<uint32_t> ends;
};
inline constexpr int64_t kDefaultTokens = 200;

enum class TextEnd { kToken, kStop, kLength };

// A prompt's text. `end_token`: the one that ended it, by its name.
struct SampledText {
  std::string text;
  int64_t tokens = 0;
  TextEnd end = TextEnd::kLength;
  std::string end_token;
};

// As it comes, the prompts in their order: those behind the one that is shown wait for its end.
struct TextWatcher {
  std::function<void(size_t prompt)> begun;
  std::function<void(const std::string& piece)> piece;
  std::function<void(size_t prompt, const SampledText& text)> ended;
};

// Prompts as ids, of each at least one. `interrupted` is asked as often as something comes.
// Errors: kConfig (prompts and tokens are more than the model's context), the worker's.
Result<void> sample_texts(const SampledModel& model, const SamplingOptions& options,
                          const std::vector<std::vector<uint32_t>>& prompts,
                          const std::function<bool()>& interrupted, const TextWatcher& watcher);

// How many new tokens a prompt of so many gets; context 0: not known. Errors: kConfig, as above.
Result<int64_t> tokens_in_context(int64_t context, int64_t wanted, int64_t prompt,
                                  bool fewer = false);

}  // namespace lockstep::cli
