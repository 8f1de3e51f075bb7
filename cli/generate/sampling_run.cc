#include "cli/generate/sampling_run.h"

#include <algorithm>
#include <sstream>

#include "base/json.h"
#include "base/text.h"
#include "cli/shared/exit_status.h"
#include "cli/shared/programs.h"
#include "launcher/host/pipe.h"

namespace lockstep::cli {
namespace {

// What has come for one prompt.
struct Growing {
  TextStream stream;
  int64_t most;         // tokens
  std::string waiting;  // to be shown when it is this prompt's turn
  SampledText text = {};
  bool ended = false;
};

class Texts {
 public:
  Texts(const SampledModel& model, const SamplingOptions& options,
        const std::vector<int64_t>& counts, const TextWatcher& watcher)
      : model_(model), watcher_(watcher) {
    for (const int64_t count : counts)
      growing_.push_back(
          {TextStream(*model.tokenizer, options.stops, options.ends.empty()), count, ""});
  }

  // A line of the worker: "PROMPT ID" or "PROMPT ID end".
  Result<void> add(const std::string& line) {
    std::istringstream words(line);
    size_t prompt = 0;
    uint32_t id = 0;
    std::string end;
    if (!(words >> prompt >> id) || prompt >= growing_.size())
      return Error{Code::kBug, text("lockstep-worker printed \"", line, "\", which is no token")};
    words >> end;
    Growing& one = growing_[prompt];
    if (one.ended) return {};  // the worker draws on after a stop text
    ++one.text.tokens;
    if (!end.empty()) {
      one.text.end = TextEnd::kToken;
      const uint32_t ids[] = {id};
      LOCKSTEP_TRY(one.text.end_token, model_.tokenizer->decode(ids, /*show_special=*/true));
      finish(one);
    } else {
      LOCKSTEP_TRY(const std::string piece, one.stream.add(id));
      one.waiting += piece;
      if (one.stream.stopped()) one.text.end = TextEnd::kStop;
      if (one.stream.stopped() || one.text.tokens == one.most) finish(one);
    }
    show();
    return {};
  }
  bool all_ended() const { return shown_ == growing_.size(); }

  // What has come when the worker was told to end.
  void end_all() {
    for (Growing& one : growing_)
      if (!one.ended) finish(one);
    show();
  }

 private:
  void finish(Growing& one) {
    one.waiting += one.stream.end();
    one.text.text = one.stream.text();
    one.ended = true;
  }
  void show() {
    for (; shown_ < growing_.size(); ++shown_, begun_ = false) {
      Growing& one = growing_[shown_];
      if (!begun_ && one.text.tokens == 0 && !one.ended) return;
      if (!begun_) watcher_.begun(shown_);
      begun_ = true;
      if (!one.waiting.empty()) watcher_.piece(std::exchange(one.waiting, ""));
      if (!one.ended) return;
      watcher_.ended(shown_, one.text);
    }
  }

  const SampledModel& model_;
  const TextWatcher& watcher_;
  std::vector<Growing> growing_;
  size_t shown_ = 0;    // so many are shown whole
  bool begun_ = false;  // the one after these
};

std::vector<std::string> worker_arguments(const SampledModel& model, const SamplingOptions& o,
                                          int64_t seen) {
  std::vector<std::string> arguments{"generate"};
  const auto replaced = [](const std::string& flag) {
    return flag.starts_with("--training.seq_len=") || flag.starts_with("--training.threads=");
  };
  std::remove_copy_if(model.flags.begin(), model.flags.end(), std::back_inserter(arguments),
                      replaced);
  arguments.push_back(text("--training.seq_len=", std::max(seen, model.trained_length)));
  arguments.push_back(text("--training.threads=", o.threads));
  return arguments;
}

}  // namespace

Result<int64_t> tokens_in_context(int64_t context, int64_t wanted, int64_t prompt, bool fewer) {
  const int64_t asked = wanted > 0 ? wanted : kDefaultTokens;
  if (context == 0 || prompt + asked <= context) return asked;
  if (prompt >= context)
    return Error{Code::kConfig,
                 text("the prompt has ", prompt, " tokens, and the model's context has room for ",
                      context, " with the new ones; give a shorter prompt")};
  if (wanted == 0 || fewer) return context - prompt;
  return Error{Code::kConfig,
               text("the prompt has ", prompt, " tokens and --tokens asks for ", wanted,
                    " more, but the model's context is ", context, " tokens; give --tokens ",
                    context - prompt, " or a shorter prompt")};
}

Result<void> sample_texts(const SampledModel& model, const SamplingOptions& o,
                          const std::vector<std::vector<uint32_t>>& prompts,
                          const std::function<bool()>& interrupted, const TextWatcher& watcher) {
  std::vector<int64_t> counts;
  int64_t seen = 0;
  for (const auto& prompt : prompts) {
    LOCKSTEP_TRY(const int64_t count,
                 tokens_in_context(model.context, o.tokens, std::ssize(prompt), o.fewer));
    counts.push_back(count);
    seen = std::max(seen, std::ssize(prompt) + count);
  }
  const nlohmann::json request{{"prompts", prompts},
                               {"counts", counts},
                               {"temperature", o.temperature},
                               {"top_k", o.top_k},
                               {"top_p", o.top_p},
                               {"seed", o.seed},
                               {"vocab", model.tokenizer->vocab_size()},
                               {"ends", o.ends},
                               {"together", o.together},
                               {"of_folder", model.of_folder},
                               {"checkpoint", model.checkpoint}};
  LOCKSTEP_TRY(const auto worker, worker_program());
  Texts texts(model, o, counts, watcher);
  std::string line;
  Result<void> added;
  const auto watch = [&](std::string_view bytes) {
    for (const char c : bytes) {
      if (c != '\n') {
        line += c;
        continue;
      }
      if (added.ok()) added = texts.add(line);
      line.clear();
    }
    return !interrupted() && added.ok() && !texts.all_ended();
  };
  LOCKSTEP_TRY(
      const launcher::ProgramOutput output,
      launcher::run_program(worker, worker_arguments(model, o, seen), request.dump(), 0, watch));
  LOCKSTEP_RETURN_IF_ERROR(added);
  if (output.exit_status != 0 && !interrupted() && !texts.all_ended())
    return Error{
        output.exit_status == exit_status(Code::kConfig) ? Code::kConfig : Code::kBug,
        text("lockstep-worker ended with status ", output.exit_status, "; its errors are above")};
  texts.end_all();
  return {};
}

}  // namespace lockstep::cli
