#include "cli/generate/generate_command.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/file_system.h"
#include "base/log.h"
#include "base/number.h"
#include "cli/shared/command_words.h"
#include "cli/shared/exit_status.h"
#include "cli/shared/programs.h"
#include "cli/shared/run_args.h"
#include "data/tokenizer/open_tokenizer.h"
#include "launcher/host/pipe.h"

namespace lockstep::cli {
namespace {

using nlohmann::json;

struct Options {
  std::string run, prompt = "\n";
  int64_t tokens = 200, top_k = 0;
  double temperature = 0.8;
  int64_t seed = 42;
};

// The tokenizer of the run's data.
Result<std::unique_ptr<data::Tokenizer>> tokenizer_of_run(const std::string& run) {
  LOCKSTEP_TRY(const auto path, data_path_of_run(posix_file_system(), run));
  return data::tokenizer_of_dataset(posix_file_system(), path);
}

Result<void> generate(const Options& o) {
  const std::filesystem::path folder = o.run;
  FileSystem& file_system = posix_file_system();
  if (file_system.exists(folder / "config.json") && !file_system.exists(folder / "run_args.json"))
    return Error{Code::kConfig,
                 text(o.run,
                      " is a model's folder, and generate samples from a run's: its checkpoint "
                      "and the tokenizer of its data. To sample from the model of this folder use "
                      "transformers, or train it (model.hf_assets_path) and name that run")};
  LOCKSTEP_TRY(std::vector<std::string> arguments, run_flags(posix_file_system(), o.run));
  arguments.insert(arguments.begin(), "generate");
  LOCKSTEP_TRY(const auto tokenizer, tokenizer_of_run(o.run));
  const auto begin = tokenizer->begin_of_document();
  std::vector<uint32_t> ids(begin.begin(), begin.end());
  LOCKSTEP_RETURN_IF_ERROR(tokenizer->encode(o.prompt, ids));
  if (ids.empty()) ids.push_back(tokenizer->end_of_document());
  const json request{{"ids", ids},       {"count", o.tokens}, {"temperature", o.temperature},
                     {"top_k", o.top_k}, {"seed", o.seed},    {"vocab", tokenizer->vocab_size()}};
  LOCKSTEP_TRY(const auto worker, worker_program());
  LOCKSTEP_TRY(const launcher::ProgramOutput output,
               launcher::run_program(worker, arguments, request.dump()));
  if (output.exit_status != 0)
    return Error{output.exit_status == exit_status(Code::kConfig) ? Code::kConfig : Code::kBug,
                 text("lockstep-worker ended with status ", output.exit_status,
                      "; its own words are above")};
  std::vector<uint32_t> drawn;
  for (const std::string& line : split(output.standard_output, '\n'))
    if (!line.empty()) drawn.push_back(parse_number<uint32_t>(line).value());
  LOCKSTEP_TRY(const std::string words, tokenizer->decode(drawn));
  std::cout << o.prompt << words << "\n";
  return {};
}

}  // namespace

int generate_command(int argc, char** argv) {
  Options o;
  CLI::App app{
      "Samples text from the newest checkpoint of a run.\n\n"
      "Examples:\n"
      "  lockstep generate results/training/demo --prompt 'HAMLET.' --tokens 300\n"
      "  lockstep generate results/training/demo --temperature 0 --tokens 80\n",
      "lockstep generate"};
  app.add_option("run", o.run, "A run's folder (it holds run_args.json and checkpoints/)")
      ->required();
  app.add_option("--prompt", o.prompt, "Text to go on from");
  app.add_option("--tokens", o.tokens, "How many tokens to draw")->check(CLI::Range(1, 1000000));
  app.add_option("--temperature", o.temperature, "0: always the likeliest token")
      ->check(CLI::Range(0.0, 100.0));
  app.add_option("--top-k", o.top_k, "Draw among the k likeliest; 0: all")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--seed", o.seed, "The same seed gives the same text");
  if (const auto end = parse_words(app, argc, argv)) return *end;
  const auto done = generate(o);
  if (done.ok()) return 0;
  log_error(done.error().message);
  return status_of_input(done.error().code);
}

}  // namespace lockstep::cli
