#include "cli/eval/eval_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <optional>
#include <thread>

#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/prepare/prepare_tables.h"
#include "cli/shared/command_words.h"
#include "cli/shared/exit_status.h"
#include "cli/shared/model_tokenizer.h"
#include "cli/shared/programs.h"
#include "cli/shared/record_flags.h"
#include "data/prepare/prepare.h"
#include "data/tokenizer/open_tokenizer.h"
#include "launcher/host/pipe.h"
#include "launcher/host/scratch_folder.h"

namespace lockstep::cli {
namespace {

constexpr int64_t kSeqLen = 1024;
constexpr int64_t kBatchTokens = 4096;  // about as many are computed at once

constexpr const char* kEvalAbout =
    R"(Loss and perplexity of a Hugging Face folder's model (config.json, *.safetensors), in fp32,
as one line of JSON: {"loss": …, "perplexity": …, "tokens": …, "parameters": …}. It evaluates one of

  INPUT…      text files, or JSON lines with --text-field, --prompt-field and --response-field, or
              --chat-template, as `lockstep prepare` reads them; tokenized by the folder's tokenizer
  --data DIR  a folder of token shards
  --tokens F  integers [batches, sequences, T] in an .npy file

Text is cut into pieces of --seq-len tokens, and each token but the very first is predicted once,
from the tokens before it in its piece. Each JSON line is evaluated by itself, so its first token is
not predicted; in prompts and chats only the responses count. A folder of shards is evaluated as in
training, in file order. The labels of an .npy file are the tokens shifted inside T, as
transformers' labels=input_ids does: "tokens" counts batches * sequences * (T - 1).

Examples:
  lockstep eval --hf models/Qwen3-0.6B book.txt
  lockstep eval --hf models/Qwen3-0.6B held_out.jsonl --text-field text --seq-len 2048
  lockstep eval --hf exported --data tokens --split val
  lockstep eval --hf models/gpt2 --tokens held_out.npy --logits logits.npy | jq .perplexity
)";

struct EvalOptions {
  std::string ignored;  // fields of config.json
  std::string folder, tokens, logits, shards, split = "val", tokenizer;
  std::vector<std::string> inputs;
  RecordFlags records;
  int64_t seq_len = 0;  // 0: not given
};

// The worker's exit status. `flags` beside the model's folder.
Result<int> run_worker(const EvalOptions& o, std::vector<std::string> flags,
                       const nlohmann::json& request) {
  flags.insert(flags.begin(), {"eval", "--model.hf_assets_path=" + o.folder});
  flags.push_back("--model.ignore_fields=" + o.ignored);
  LOCKSTEP_TRY(const auto worker, worker_program());
  LOCKSTEP_TRY(const launcher::ProgramOutput output,
               launcher::run_program(worker, flags, request.dump()));
  std::cout << output.standard_output;
  return output.exit_status;  // its own words are on standard error
}

// Ids of another tokenizer are other words to the model.
void compare_tokenizers(const EvalOptions& o) {
  Config config;
  config.model.hf_assets_path = o.folder;
  config.data.path = o.shards;
  const DataTokenizer found = data_tokenizer(posix_file_system(), config);
  if (found.match == TokenizerMatch::kOther) log_warning(found.difference);
}

Result<int> evaluate_shards(const EvalOptions& o, const std::filesystem::path& folder,
                            const std::string& split) {
  LOCKSTEP_TRY(const data::DatasetManifest manifest,
               data::read_manifest(posix_file_system(), folder));
  int64_t seq_len = manifest.recipe.packed_seq_len;
  if (seq_len == 0 || o.seq_len > 0) {
    seq_len = o.seq_len > 0 ? o.seq_len : kSeqLen;
    if (manifest.recipe.packed_seq_len == 0)
      seq_len = std::min(seq_len, std::max<int64_t>(1, manifest.tokens(split) - 1));
  }
  const int64_t rows = std::max<int64_t>(1, kBatchTokens / seq_len);
  return run_worker(o,
                    {text("--data.path=", folder.string()), text("--training.seq_len=", seq_len),
                     text("--training.local_batch_size=", rows), "--training.slots=1"},
                    {{"tokens", ""}, {"split", split}});
}

// By way of a folder of shards, which goes.
Result<int> evaluate_text(const EvalOptions& o) {
  LOCKSTEP_TRY(const launcher::ScratchFolder scratch, launcher::ScratchFolder::create());
  const std::string& tokenizer = o.tokenizer.empty() ? o.folder : o.tokenizer;
  LOCKSTEP_TRY(data::OpenedTokenizer opened, data::open_tokenizer(posix_file_system(), tokenizer));
  data::PrepareOptions options;
  options.out = scratch.path() / "tokens";
  options.val_millionths = 0;
  options.threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  LOCKSTEP_TRY(options.records, record_format(o.records, tokenizer));
  LOCKSTEP_RETURN_IF_ERROR(find_template(options.records, o.records.chat_date, tokenizer,
                                         *opened.tokenizer, opened.files));
  options.inputs.assign(o.inputs.begin(), o.inputs.end());
  LOCKSTEP_RETURN_IF_ERROR(tables_become_lines(options, scratch.path()));
  if (options.records) options.pack_seq_len = o.seq_len > 0 ? o.seq_len : kSeqLen;
  LOCKSTEP_RETURN_IF_ERROR(data::prepare(posix_file_system(), *opened.tokenizer, options));
  return evaluate_shards(o, options.out, "train");
}

Result<int> evaluate(const EvalOptions& o) {
  if (o.inputs.empty() + o.shards.empty() + o.tokens.empty() != 2)
    return Error{Code::kConfig,
                 "lockstep eval needs exactly one of INPUT…, --data and --tokens; see `lockstep "
                 "eval --help`"};
  if (!o.tokens.empty()) return run_worker(o, {}, {{"tokens", o.tokens}, {"logits", o.logits}});
  if (!o.inputs.empty()) return evaluate_text(o);
  compare_tokenizers(o);
  return evaluate_shards(o, o.shards, o.split);
}

void add_options(CLI::App& app, EvalOptions& o) {
  app.add_option("INPUT", o.inputs, "Text or JSON lines: files, and folders of them");
  app.add_option("--hf", o.folder,
                 "Hugging Face folder with config.json and *.safetensors; to evaluate a run, make "
                 "one with `lockstep export RUN DIR`")
      ->required()
      ->type_name("DIR");
  app.add_option("--model.ignore_fields", o.ignored,
                 "Fields of config.json that change no arithmetic: they are passed over")
      ->type_name("A,B");
  add_record_flags(app, o.records);
  app.add_option("--tokenizer", o.tokenizer,
                 "Tokenizer of INPUT if the folder has none, as for `lockstep prepare`");
  app.add_option("--data", o.shards, "A folder that `lockstep prepare` made")->type_name("DIR");
  app.add_option("--split", o.split, "With --data: train or val")
      ->check(CLI::IsMember({"train", "val"}))
      ->capture_default_str();
  app.add_option("--seq-len", o.seq_len,
                 text("Tokens that the model sees at once in text and shards (default: ", kSeqLen,
                      ", or the packed length)"))
      ->check(CLI::Range(1, 1 << 22))
      ->type_name("T");
  CLI::Option* const tokens =
      app.add_option("--tokens", o.tokens, "Integers [batches, sequences, T]")
          ->type_name("FILE.npy");
  app.add_option("--logits", o.logits,
                 "With --tokens: write fp32 [batches, sequences, T, vocabulary] here")
      ->needs(tokens)
      ->type_name("OUT.npy");
}

}  // namespace

int eval_command(int argc, char** argv) {
  EvalOptions o;
  CLI::App app{kEvalAbout, "lockstep eval"};
  add_options(app, o);
  if (const auto end = parse_words(app, argc, argv)) return *end;
  const Result<int> status = evaluate(o);
  if (status.ok()) return status.value();
  log_error(status.error().message);
  return status_of_input(status.error().code);
}

}  // namespace lockstep::cli
