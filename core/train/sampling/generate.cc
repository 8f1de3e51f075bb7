#include "core/train/sampling/generate.h"

#include <algorithm>
#include <map>

#include "base/log.h"
#include "core/model/decoder.h"
#include "core/train/process.h"
#include "core/train/training_step.h"
#include "hf/configured_model.h"

namespace lockstep::core {
namespace {

constexpr size_t kPromptChunk = 256;  // tokens of a prompt that are computed at once

Result<void> check_prompts(const Config& config, const layout::ModelSpec& spec,
                           const GenerateOptions& o) {
  for (const Prompt& prompt : o.prompts) {
    const int64_t tokens = std::ssize(prompt.ids);
    if (tokens == 0) return Error{Code::kConfig, "a prompt has no token"};
    if (tokens + prompt.count > config.training.seq_len)
      return Error{Code::kConfig, text("a prompt of ", tokens, " tokens and ", prompt.count,
                                       " new ones are more than the ", config.training.seq_len,
                                       " tokens that the model sees")};
    for (const int64_t id : prompt.ids)
      if (id < 0 || id >= spec.shape.vocab_size)
        return Error{Code::kConfig,
                     text("token ", id, " of the prompt is outside the vocabulary of ",
                          spec.shape.vocab_size)};
  }
  return {};
}

// The sequences that are being continued, and the cache with what they have so far.
class Continuation {
 public:
  Continuation(TrainingStep& model, const GenerateOptions& options, int64_t vocab, int64_t layers,
               const std::function<bool(const DrawnToken&)>& on_token)
      : model_(model), options_(options), vocab_(vocab), cache_(layers), on_token_(on_token) {}

  // Until all prompts have their text, or on_token wants no more.
  Result<void> run() {
    while (wanted_ && (!open_.empty() || next_ < options_.prompts.size())) {
      if (std::ssize(open_) < options_.together && next_ < options_.prompts.size()) {
        LOCKSTEP_RETURN_IF_ERROR(begin(next_++));
      } else {
        LOCKSTEP_RETURN_IF_ERROR(step());
      }
    }
    return {};
  }

 private:
  struct Open {
    size_t prompt;
    int64_t sequence, drawn = 0, last = 0;
    TokenStream stream;
  };

  Result<void> begin(size_t prompt) {
    const auto& [ids, count_wanted] = options_.prompts[prompt];
    const int64_t most = std::ssize(ids) + count_wanted;
    Open one{.prompt = prompt,
             .sequence = cache_.add(most),
             .stream = TokenStream(options_.seed, ids, equal_before_[ids]++)};
    at::Tensor logits;
    for (size_t first = 0; first < ids.size(); first += kPromptChunk) {
      const size_t count = std::min(kPromptChunk, ids.size() - first);
      const auto begin = ids.begin() + static_cast<std::ptrdiff_t>(first);
      const NewTokens rows[] = {{one.sequence, static_cast<int64_t>(count)}};
      LOCKSTEP_TRY(logits, model_.next_logits(cache_, rows,
                                              {begin, begin + static_cast<std::ptrdiff_t>(count)}));
    }
    if (draw(one, logits.const_data_ptr<float>())) open_.push_back(std::move(one));
    return {};
  }

  // One token of each.
  Result<void> step() {
    std::vector<NewTokens> rows;
    std::vector<int64_t> tokens;
    for (const Open& one : open_) {
      rows.push_back({one.sequence, 1});
      tokens.push_back(one.last);
    }
    LOCKSTEP_TRY(const at::Tensor logits, model_.next_logits(cache_, rows, tokens));
    const float* row = logits.const_data_ptr<float>();
    std::vector<Open> still;
    for (Open& one : open_) {
      if (wanted_ && draw(one, row)) still.push_back(std::move(one));
      row += logits.size(1);
    }
    open_ = std::move(still);
    return {};
  }

  // Whether it goes on.
  bool draw(Open& one, const float* logits) {
    const std::span<const float> drawn_among(logits, static_cast<size_t>(vocab_));
    one.last = draw_token(drawn_among, options_.sampling, one.stream.uniform(one.drawn++));
    const auto& ends = options_.ends;
    const bool ended = std::find(ends.begin(), ends.end(), one.last) != ends.end();
    wanted_ = on_token_({one.prompt, one.last, ended});
    if (!ended && one.drawn < options_.prompts[one.prompt].count) return true;
    cache_.drop(one.sequence);
    return false;
  }

  TrainingStep& model_;
  const GenerateOptions& options_;
  const int64_t vocab_;  // ids below are drawn
  KeyValueCache cache_;
  const std::function<bool(const DrawnToken&)>& on_token_;
  bool wanted_ = true;
  size_t next_ = 0;  // the first prompt that has not begun
  std::map<std::vector<int64_t>, uint64_t> equal_before_;
  std::vector<Open> open_;
};

}  // namespace

Result<void> generate(FileSystem& file_system, const Config& config, const GenerateOptions& o,
                      const std::function<bool(const DrawnToken&)>& on_token) {
  LOCKSTEP_TRY(const layout::ModelSpec spec, hf::configured_model(config, 0));
  for (const std::string& note : spec.notes) log_warning(note);
  LOCKSTEP_RETURN_IF_ERROR(check_prompts(config, spec, o));
  LOCKSTEP_TRY(Membership alone, join_alone());
  LOCKSTEP_RETURN_IF_ERROR(check_device(spec, alone.groups().device));
  TrainingStep model(config, spec, alone.groups(), /*forward_only=*/true);
  LOCKSTEP_RETURN_IF_ERROR(fill_weights(file_system, config, spec, o.weights, model));
  const int64_t vocab = spec.shape.vocab_size;
  return Continuation(model, o, o.vocab > 0 ? std::min(o.vocab, vocab) : vocab, spec.shape.n_layers,
                      on_token)
      .run();
}

}  // namespace lockstep::core
