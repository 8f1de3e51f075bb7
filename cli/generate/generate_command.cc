#include "cli/generate/generate_command.h"

#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <optional>

#include "base/file_system.h"
#include "base/json.h"
#include "base/log.h"
#include "base/number.h"
#include "cli/generate/sampled_model.h"
#include "cli/generate/text_stream.h"
#include "cli/shared/command_words.h"
#include "cli/shared/exit_status.h"
#include "cli/shared/programs.h"
#include "data/prepare/chat_template.h"
#include "data/prepare/record.h"
#include "launcher/host/ignored_signals.h"
#include "launcher/host/pipe.h"

namespace lockstep::cli {
namespace {

constexpr const char* kGenerateAbout =
    R"(Samples text from the newest checkpoint of a run, from a checkpoint, or from a Hugging Face
folder (config.json, *.safetensors and a tokenizer), as it comes.

--chat holds a conversation: --prompt is one message of the user; without it each line of standard
input is one. Earlier messages are kept. The chat template is the one that the run's data were
prepared with, or else that of the folder if Lockstep knows it (docs/DATA.md), or else
--chat-template. An answer ends where the model ends it, or after --tokens.

Examples:
  lockstep generate results/training/demo --prompt 'HAMLET.' --tokens 300
  lockstep generate results/training/demo --temperature 0 --tokens 80
  lockstep generate exported --prompt 'Once upon a time'
  lockstep generate results/training/sft --chat
  lockstep generate models/Qwen3-0.6B --chat --system 'Be brief.' --prompt 'Who are you?'
)";

constexpr int kInterrupted = 128 + SIGINT;

struct GenerateOptions {
  std::string path, prompt = "\n", system, chat_template, tokenizer;
  bool chat = false, has_prompt = false;
  int64_t tokens = 200, top_k = 0;
  double temperature = 0.8;
  int64_t seed = 42;
};

volatile sig_atomic_t interrupted = 0;

// From here on Ctrl-C ends what is waited for, and then the program.
void notice_interrupts() {
  if (launcher::is_ignored(SIGINT)) return;
  struct sigaction noticed {};
  noticed.sa_handler = [](int) { interrupted = 1; };
  ::sigaction(SIGINT, &noticed, nullptr);
}

// Shows the text that the model goes on with; all of it. `before` comes first, once there is some.
Result<std::string> go_on(const GenerateOptions& o, const SampledModel& model,
                          std::vector<uint32_t> ids, const std::vector<uint32_t>& ends,
                          const std::string& before) {
  if (ids.empty()) ids.push_back(model.tokenizer->end_of_document());
  std::vector<std::string> arguments{"generate"};
  arguments.insert(arguments.end(), model.flags.begin(), model.flags.end());
  if (model.of_folder) {
    const int64_t wanted = static_cast<int64_t>(ids.size()) + o.tokens;
    const int64_t seen = model.positions > 0 ? std::min(model.positions, wanted) : wanted;
    arguments.push_back(text("--training.seq_len=", seen));
  }
  const nlohmann::json request{{"ids", ids},
                               {"count", o.tokens},
                               {"temperature", o.temperature},
                               {"top_k", o.top_k},
                               {"seed", o.seed},
                               {"vocab", model.tokenizer->vocab_size()},
                               {"ends", ends},
                               {"of_folder", model.of_folder},
                               {"checkpoint", model.checkpoint}};
  LOCKSTEP_TRY(const auto worker, worker_program());
  TextStream shown(*model.tokenizer, std::cout);
  std::string line;
  bool begun = false;
  Result<void> decoded;
  const auto watch = [&](std::string_view bytes) {
    for (const char c : bytes) {
      if (c != '\n') {
        line += c;
        continue;
      }
      if (!begun) std::cout << before << std::flush;
      begun = true;
      if (decoded.ok()) decoded = shown.add(parse_number<uint32_t>(line).value());
      line.clear();
    }
    return interrupted == 0;
  };
  LOCKSTEP_TRY(const launcher::ProgramOutput output,
               launcher::run_program(worker, arguments, request.dump(), 0, watch));
  if (output.exit_status != 0 && interrupted == 0)
    return Error{
        output.exit_status == exit_status(Code::kConfig) ? Code::kConfig : Code::kBug,
        text("lockstep-worker ended with status ", output.exit_status, "; its errors are above")};
  LOCKSTEP_RETURN_IF_ERROR(decoded);
  if (!begun) std::cout << before;
  shown.end();
  std::cout << std::endl;
  return shown.text();
}

std::vector<uint32_t> beginning(const data::Tokenizer& tokenizer) {
  const auto ids = tokenizer.begin_of_document();
  return {ids.begin(), ids.end()};
}

Result<void> continue_text(const GenerateOptions& o, const SampledModel& model) {
  std::vector<uint32_t> ids = beginning(*model.tokenizer);
  LOCKSTEP_RETURN_IF_ERROR(model.tokenizer->encode(o.prompt, ids));
  LOCKSTEP_RETURN_IF_ERROR(go_on(o, model, std::move(ids), {}, o.prompt));
  return {};
}

Result<data::ChatTemplate> template_for(const GenerateOptions& o, const SampledModel& model) {
  const std::string& name = o.chat_template.empty() ? model.chat_template : o.chat_template;
  if (name.empty())
    return Error{Code::kConfig, text("--chat needs a chat template, but ", o.path,
                                     " has none: ", model.no_chat_template)};
  return data::ChatTemplate::create(name, *model.tokenizer);
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

Result<void> chat(const GenerateOptions& o, const SampledModel& model) {
  LOCKSTEP_TRY(const data::ChatTemplate words, template_for(o, model));
  const std::vector<uint32_t> ends{words.end_of_answer(), model.tokenizer->end_of_document()};
  data::Conversation said;
  if (!o.system.empty()) said.messages.push_back({"system", o.system});
  const bool by_hand = ::isatty(STDIN_FILENO) == 1;
  while (interrupted == 0) {
    const auto message = o.has_prompt ? std::optional(o.prompt) : next_message(by_hand);
    if (!message) return {};
    said.messages.push_back({"user", *message});
    LOCKSTEP_TRY(const std::vector<data::Passage> passages, words.prompt(said));
    std::vector<uint32_t> ids = beginning(*model.tokenizer);
    for (const data::Passage& passage : passages)
      LOCKSTEP_RETURN_IF_ERROR(data::encode_passage(*model.tokenizer, passage, ids));
    LOCKSTEP_TRY(std::string answer, go_on(o, model, std::move(ids), ends, ""));
    said.messages.push_back({"assistant", std::move(answer)});
    if (o.has_prompt) return {};
  }
  return {};
}

Result<void> generate(const GenerateOptions& o) {
  LOCKSTEP_TRY(const SampledModel model,
               open_sampled_model(posix_file_system(), o.path, o.tokenizer));
  notice_interrupts();
  return o.chat ? chat(o, model) : continue_text(o, model);
}

}  // namespace

int generate_command(int argc, char** argv) {
  GenerateOptions o;
  CLI::App app{kGenerateAbout, "lockstep generate"};
  app.add_option("MODEL", o.path,
                 "A run's folder (it holds run_args.json and checkpoints/), a checkpoint, or a "
                 "Hugging Face folder")
      ->required();
  CLI::Option* const prompt =
      app.add_option("--prompt", o.prompt, "Text to continue")->type_name("WORDS");
  CLI::Option* const talk = app.add_flag("--chat", o.chat, "Answer messages of a user");
  app.add_option("--system", o.system, "The chat's system message")
      ->type_name("WORDS")
      ->needs(talk);
  app.add_option("--chat-template", o.chat_template,
                 "Chat template: " + data::ChatTemplate::known_names())
      ->type_name("NAME")
      ->needs(talk);
  app.add_option("--tokenizer", o.tokenizer,
                 "Tokenizer of a Hugging Face folder that has none, as for `lockstep prepare`");
  app.add_option("--tokens", o.tokens, "Tokens to draw; with --chat, at most in an answer")
      ->check(CLI::Range(1, 1000000));
  app.add_option("--temperature", o.temperature, "0: always the likeliest token")
      ->check(CLI::Range(0.0, 100.0));
  app.add_option("--top-k", o.top_k, "Draw among the k likeliest; 0: all")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--seed", o.seed, "The same seed gives the same text");
  if (const auto end = parse_words(app, argc, argv)) return *end;
  o.has_prompt = prompt->count() > 0;
  const auto done = generate(o);
  if (interrupted != 0) return kInterrupted;
  if (done.ok()) return 0;
  log_error(done.error().message);
  return status_of_input(done.error().code);
}

}  // namespace lockstep::cli
