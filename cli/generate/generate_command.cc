#include "cli/generate/generate_command.h"

#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <optional>
#include <sstream>
#include <thread>

#include "base/file_system.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/generate/sampled_model.h"
#include "cli/generate/sampling_run.h"
#include "cli/shared/command_words.h"
#include "cli/shared/exit_status.h"
#include "cli/shared/jinja_python.h"
#include "cli/shared/record_flags.h"
#include "data/prepare/chat_probe.h"
#include "data/prepare/chat_template.h"
#include "data/prepare/record.h"
#include "launcher/host/ignored_signals.h"

namespace lockstep::cli {
namespace {

constexpr const char* kGenerateAbout =
    R"(Samples text from the newest checkpoint of a run, from a checkpoint, or from a Hugging Face
folder (config.json, *.safetensors and a tokenizer), as it comes.

Several prompts (--prompt given several times, or --prompts FILE) are computed together and shown
in their order, each after a line "--- 2 of 3 ---". A prompt's text is the same alone and among
others; equal prompts get different texts. Weights are computed with as config.json or the run has
them, bf16 or fp32. Keys and values of earlier tokens are kept in memory.

A text ends at the tokenizer's end token, which is named on standard error, before a --stop text,
or after --tokens. Prompt and tokens must fit in the model's context: max_position_embeddings of
config.json, else the run's training.seq_len.

--chat holds a conversation: --prompt is one message of the user; without it each line of standard
input is one. Earlier messages are kept. The chat template is the one that the run's data were
prepared with, or else that of the folder if Lockstep knows it (docs/DATA.md), or else
--chat-template. An answer ends where the model ends it, or after --tokens.

Examples:
  lockstep generate results/training/demo --prompt 'HAMLET.' --tokens 200
  lockstep generate results/training/demo --temperature 0 --tokens 80
  lockstep generate exported --prompt 'Once upon a time' --top-p 0.9 --stop '\n\n'
  lockstep generate exported --prompts questions.txt --top-k 40 --json > answers.jsonl
  lockstep generate results/training/sft --chat
  lockstep generate models/Qwen3-0.6B --chat --system 'Be brief.' --prompt 'Who are you?'
)";

constexpr int kInterrupted = 128 + SIGINT;

struct GenerateOptions {
  std::string path, prompts_file, system, chat_template, chat_date, tokenizer;
  std::vector<std::string> prompts;
  bool chat = false, json = false, ignore_end = false;
  SamplingOptions sampling;
};

volatile sig_atomic_t interrupted = 0;

// From here on Ctrl-C ends what is waited for, and then the program.
void notice_interrupts() {
  if (launcher::is_ignored(SIGINT)) return;
  struct sigaction noticed {};
  noticed.sa_handler = [](int) { interrupted = 1; };
  ::sigaction(SIGINT, &noticed, nullptr);
}

bool was_interrupted() { return interrupted != 0; }

std::vector<uint32_t> beginning(const data::Tokenizer& tokenizer) {
  const auto ids = tokenizer.begin_of_document();
  return {ids.begin(), ids.end()};
}

// Lines of the file, without those that are empty.
Result<std::vector<std::string>> lines_of(const std::string& path) {
  LOCKSTEP_TRY(const std::string contents, read_file(posix_file_system(), path));
  std::vector<std::string> lines;
  std::istringstream in(contents);
  for (std::string line; std::getline(in, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (!line.empty()) lines.push_back(line);
  }
  if (lines.empty()) return Error{Code::kConfig, text(path, " has no prompt: every line is empty")};
  return lines;
}

std::string end_name(TextEnd end) {
  switch (end) {
    case TextEnd::kToken: return "end_token";
    case TextEnd::kStop: return "stop";
    case TextEnd::kLength: return "length";
  }
  return "";
}

std::string of_prompts(size_t prompt, size_t count) {
  return count > 1 ? text(" of prompt ", prompt + 1) : "";
}

// Shows texts as --json or without it.
TextWatcher shown_texts(const GenerateOptions& o, const std::vector<std::string>& prompts) {
  const size_t count = prompts.size();
  if (o.json)
    return {[](size_t) {}, [](const std::string&) {},
            [&prompts](size_t i, const SampledText& sampled) {
              const nlohmann::ordered_json line{{"prompt", prompts[i]},
                                                {"text", valid_utf8(sampled.text)},
                                                {"tokens", sampled.tokens},
                                                {"end", end_name(sampled.end)}};
              std::cout << line.dump() << std::endl;
            }};
  return {[&prompts, count](size_t i) {
            if (count > 1) std::cout << "--- " << i + 1 << " of " << count << " ---\n";
            std::cout << prompts[i] << std::flush;
          },
          [](const std::string& piece) { std::cout << piece << std::flush; },
          [count](size_t i, const SampledText& sampled) {
            std::cout << std::endl;
            if (sampled.end == TextEnd::kToken)
              log_notice("the text", of_prompts(i, count), " ended with the end token ",
                         sampled.end_token, " after ", sampled.tokens,
                         " tokens; --ignore-end draws on");
          }};
}

Result<void> continue_texts(const GenerateOptions& o, const SampledModel& model) {
  std::vector<std::string> prompts = o.prompts;
  if (!o.prompts_file.empty()) {
    LOCKSTEP_TRY(const auto lines, lines_of(o.prompts_file));
    prompts.insert(prompts.end(), lines.begin(), lines.end());
  }
  if (prompts.empty()) prompts.push_back("\n");
  std::vector<std::vector<uint32_t>> ids;
  for (const std::string& prompt : prompts) {
    ids.push_back(beginning(*model.tokenizer));
    LOCKSTEP_RETURN_IF_ERROR(model.tokenizer->encode(prompt, ids.back()));
    if (ids.back().empty()) ids.back().push_back(model.tokenizer->end_of_document());
  }
  SamplingOptions sampling = o.sampling;
  if (!o.ignore_end) sampling.ends = model.ends;
  return sample_texts(model, sampling, ids, was_interrupted, shown_texts(o, prompts));
}

Result<data::ChatTemplate> template_for(const GenerateOptions& o, const SampledModel& model) {
  const std::string& name = o.chat_template.empty() ? model.chat_template : o.chat_template;
  if (!name.empty()) return data::ChatTemplate::create(name, *model.tokenizer);
  const Error none{Code::kConfig,
                   text("--chat needs a chat template, but ", o.path, " has none: ")};
  if (model.chat_folder.empty()) return Error{none.code, none.message + model.no_chat_template};
  const auto found =
      data::find_chat_template(posix_file_system(), model.chat_folder, *model.tokenizer,
                               o.chat_date.empty() ? model.chat_date : o.chat_date, jinja_python());
  if (!found.ok()) return Error{found.error().code, none.message + found.error().message};
  return data::ChatTemplate::create(found.value().name, *model.tokenizer, found.value().jinja);
}

// The next message of the user; none: it is over.
std::optional<std::string> next_message(bool by_hand) {
  std::string line;
  while (line.find_first_not_of(" \t\r") == line.npos) {
    if (by_hand) std::cout << "> " << std::flush;
    if (!std::getline(std::cin, line)) {
      if (by_hand) std::cout << std::endl;
      return std::nullopt;
    }
  }
  return line;
}

// The answer to `ids`, shown as it comes.
Result<std::string> answer(const SampledModel& model, const SamplingOptions& sampling,
                           std::vector<uint32_t> ids) {
  std::string said;
  const TextWatcher watcher{[](size_t) {},
                            [](const std::string& piece) { std::cout << piece << std::flush; },
                            [&said](size_t, const SampledText& sampled) {
                              said = sampled.text;
                              std::cout << std::endl;
                              if (sampled.end == TextEnd::kLength && !was_interrupted())
                                log_notice("the answer is cut after ", sampled.tokens,
                                           " tokens; --tokens says how many it may have");
                            }};
  LOCKSTEP_RETURN_IF_ERROR(
      sample_texts(model, sampling, {std::move(ids)}, was_interrupted, watcher));
  return said;
}

Result<void> chat(const GenerateOptions& o, const SampledModel& model) {
  const bool one_message = !o.prompts.empty();
  if (o.prompts.size() > 1 || !o.prompts_file.empty() || o.json || o.ignore_end)
    return Error{Code::kConfig,
                 "--chat answers one --prompt, or lines of standard input; leave out further "
                 "prompts, --prompts, --json and --ignore-end"};
  LOCKSTEP_TRY(const data::ChatTemplate words, template_for(o, model));
  SamplingOptions sampling = o.sampling;
  sampling.ends = model.ends;
  sampling.ends.push_back(words.end_of_answer());
  sampling.fewer = true;
  data::Conversation said;
  if (!o.system.empty()) said.messages.push_back({"system", o.system});
  const bool by_hand = ::isatty(STDIN_FILENO) == 1;
  while (interrupted == 0) {
    const auto message = one_message ? std::optional(o.prompts[0]) : next_message(by_hand);
    if (!message) return {};
    said.messages.push_back({"user", *message});
    LOCKSTEP_TRY(const std::vector<data::Passage> passages, words.prompt(said));
    std::vector<uint32_t> ids;
    std::vector<uint8_t> in_loss;
    LOCKSTEP_RETURN_IF_ERROR(
        data::encode_document(*model.tokenizer, passages, /*begin_in_loss=*/false, ids, in_loss));
    LOCKSTEP_TRY(std::string said_back, answer(model, sampling, std::move(ids)));
    said.messages.push_back({"assistant", std::move(said_back)});
    if (one_message) return {};
  }
  return {};
}

Result<void> generate(const GenerateOptions& o) {
  LOCKSTEP_TRY(const SampledModel model,
               open_sampled_model(posix_file_system(), o.path, o.tokenizer));
  notice_interrupts();
  return o.chat ? chat(o, model) : continue_texts(o, model);
}

int64_t default_threads() {
  constexpr int64_t kMost = 16;  // more wait for the memory, and for each other
  return std::clamp<int64_t>(std::thread::hardware_concurrency(), 1, kMost);
}

void add_chat_options(CLI::App& app, GenerateOptions& o) {
  CLI::Option* const talk = app.add_flag("--chat", o.chat, "Answer messages of a user");
  app.add_option("--system", o.system, "The chat's system message")
      ->type_name("WORDS")
      ->needs(talk);
  app.add_option("--chat-template", o.chat_template,
                 "Chat template: " + data::ChatTemplate::known_names())
      ->type_name("NAME")
      ->needs(talk);
  add_chat_date_flag(app, o.chat_date);
}

void add_sampling_options(CLI::App& app, SamplingOptions& s) {
  app.add_option(
         "--tokens", s.tokens,
         text("Tokens to draw for each prompt; with --chat, at most in an answer (default: ",
              kDefaultTokens, ", or what the model's context has room for)"))
      ->check(CLI::Range(1, 1000000));
  app.add_option("--temperature", s.temperature, "0: always the likeliest token")
      ->check(CLI::Range(0.0, 100.0));
  app.add_option("--top-k", s.top_k, "Draw among the k likeliest; 0: all")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--top-p", s.top_p,
                 "Draw among the fewest likeliest tokens whose probabilities add up to p; 1: all")
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--stop", s.stops,
                 "End a text before these words; can be given several times; \\n is a new line")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  app.add_option("--seed", s.seed, "The same seed gives the same text");
  app.add_option("--together", s.together,
                 "Prompts that are computed at once; the texts are the "
                 "same")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--threads", s.threads, "That compute on the CPU; the text is the same")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
}

// "\n" and "\t" as people type them in a shell. Errors: kConfig, an empty one.
Result<void> read_stops(std::vector<std::string>& stops) {
  for (std::string& stop : stops) {
    for (const auto& [typed, meant] : {std::pair("\\n", "\n"), std::pair("\\t", "\t")})
      for (size_t at = 0; (at = stop.find(typed, at)) != stop.npos; ++at)
        stop.replace(at, 2, meant);
    if (stop.empty()) return Error{Code::kConfig, "--stop needs a text, but was given none"};
  }
  return {};
}

}  // namespace

int generate_command(int argc, char** argv) {
  GenerateOptions o;
  o.sampling.threads = default_threads();
  CLI::App app{kGenerateAbout, "lockstep generate"};
  app.add_option("MODEL", o.path,
                 "A run's folder (it holds run_args.json and checkpoints/), a checkpoint, or a "
                 "Hugging Face folder")
      ->required();
  app.add_option("--prompt", o.prompts, "Text to continue; can be given several times")
      ->type_name("WORDS")
      ->allow_extra_args(false);
  app.add_option("--prompts", o.prompts_file, "A file with a prompt on each line")
      ->type_name("FILE");
  app.add_flag("--json", o.json,
               "Print a line of JSON for each prompt: prompt, text, tokens, and end (end_token, "
               "stop or length)");
  app.add_flag("--ignore-end", o.ignore_end, "Draw on after the end token, and show its name");
  add_chat_options(app, o);
  app.add_option("--tokenizer", o.tokenizer,
                 "Tokenizer of a Hugging Face folder that has none, as for `lockstep prepare`");
  add_sampling_options(app, o.sampling);
  if (const auto end = parse_words(app, argc, argv)) return *end;
  const auto read = read_stops(o.sampling.stops);
  const auto done = read.ok() ? generate(o) : read;
  if (interrupted != 0) return kInterrupted;
  if (done.ok()) return 0;
  log_error(done.error().message);
  return status_of_input(done.error().code);
}

}  // namespace lockstep::cli
