#include "cli/eval/eval_command.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "cli/shared/programs.h"
#include "launcher/host/pipe.h"

namespace lockstep::cli {
namespace {

constexpr const char* kAbout =
    R"(Loss and perplexity of a Hugging Face folder's model (config.json and *.safetensors) on given
tokens, in fp32, as one line of JSON: {"loss": …, "perplexity": …, "tokens": …, "parameters": …}.

FILE.npy holds integers [batches, sequences, T]. Labels are the tokens shifted inside T, as
transformers' labels=input_ids: "tokens" counts batches * sequences * (T - 1).

Examples:
  lockstep eval --hf models/Qwen3-0.6B --tokens held_out.npy
  lockstep eval --hf models/gpt2 --tokens held_out.npy --logits logits.npy | jq .perplexity
)";

// The worker's exit status.
Result<int> evaluate(const std::string& folder, const std::string& tokens,
                     const std::string& logits) {
  const nlohmann::json request{{"tokens", tokens}, {"logits", logits}};
  LOCKSTEP_TRY(const auto worker, worker_program());
  LOCKSTEP_TRY(
      const launcher::ProgramOutput output,
      launcher::run_program(worker, {"eval", "--model.hf_assets_path=" + folder}, request.dump()));
  std::cout << output.standard_output;
  return output.exit_status;  // its own words are on standard error
}

}  // namespace

int eval_command(int argc, char** argv) {
  std::string folder, tokens, logits;
  CLI::App app{kAbout, "lockstep eval"};
  app.add_option("--hf", folder, "Folder with config.json and *.safetensors")
      ->required()
      ->type_name("DIR");
  app.add_option("--tokens", tokens, "Integers [batches, sequences, T]")
      ->required()
      ->type_name("FILE.npy");
  app.add_option("--logits", logits, "Write fp32 [batches, sequences, T, vocabulary] here")
      ->type_name("OUT.npy");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : exit_status(Code::kConfig);
  }
  const Result<int> status = evaluate(folder, tokens, logits);
  if (status.ok()) return status.value();
  log_error(status.error().message);
  return exit_status(status.error().code);
}

}  // namespace lockstep::cli
