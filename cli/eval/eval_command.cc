#include "cli/eval/eval_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <optional>
#include <thread>

#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/generate/sampled_model.h"
#include "cli/prepare/prepare_tables.h"
#include "cli/shared/command_words.h"
#include "cli/shared/exit_status.h"
#include "cli/shared/model_tokenizer.h"
#include "cli/shared/programs.h"
#include "cli/shared/record_flags.h"
#include "cli/shared/run_args.h"
#include "data/prepare/prepare.h"
#include "data/tokenizer/open_tokenizer.h"
#include "hf/hf_config.h"
#include "launcher/host/pipe.h"
#include "launcher/host/scratch_folder.h"

namespace lockstep::cli {
namespace {

constexpr int64_t kSeqLen = 1024;
constexpr int64_t kBatchTokens = 4096;  // about as many are computed at once

constexpr const char* kEvalAbout =
    R"(Loss and perplexity of a model, in fp32, as one line of JSON:
{"loss": …, "perplexity": …, "tokens": …, "parameters": …}. MODEL is a run's folder (its newest
checkpoint), one of its checkpoints, or a Hugging Face folder (config.json, *.safetensors). The
model is evaluated on one of

  INPUT…      text files, or JSON lines with --text-field, --prompt-field and --response-field, or
              --chat-template, as `lockstep prepare` reads them; tokenized by the model's tokenizer
  --data DIR  a folder of token shards; of a run without INPUT, the data that it was trained on
  --tokens F  integers [batches, sequences, T] in an .npy file

Text is cut into pieces of --seq-len tokens, and each token but the very first is predicted once,
from the tokens before it in its piece. Each JSON line is evaluated by itself, so its first token is
not predicted; in prompts and chats only the responses count. A folder of shards is evaluated as in
training, in file order. The labels of an .npy file are the tokens shifted inside T, as
transformers' labels=input_ids does: "tokens" counts batches * sequences * (T - 1).

Examples:
  lockstep eval results/a
  lockstep eval results/a book.txt
  lockstep eval results/a/checkpoints/step_00000400.g1-7f2a91 book.txt
  lockstep eval models/Qwen3-0.6B held_out.jsonl --text-field text --seq-len 2048
  lockstep eval exported --data tokens --split val
  lockstep eval models/gpt2 --tokens held_out.npy --logits logits.npy | jq .perplexity
)";

struct EvalOptions {
  std::string ignored;  // fields of config.json
  std::string path, tokens, logits, shards, split = "val", tokenizer;
  std::vector<std::string> inputs;
  RecordFlags records;
  int64_t seq_len = 0;     // 0: not given
  bool of_folder = false;  // by --hf
};

// Whether the flag says which model a run has, or where it is saved.
bool is_of_model(const std::string& flag) {
  constexpr const char* kKept[] = {"--model.", "--lora.", "--job.",
                                   "--checkpoint.folder=", "--data.document_mask="};
  return std::any_of(std::begin(kKept), std::end(kKept),
                     [&flag](const char* key) { return flag.starts_with(key); });
}

// The worker's exit status. `flags` say on what it computes.
Result<int> run_worker(const EvalOptions& o, const SampledModel& model,
                       std::vector<std::string> flags, nlohmann::json request) {
  flags.insert(flags.begin(), "eval");
  std::copy_if(model.flags.begin(), model.flags.end(), std::back_inserter(flags), is_of_model);
  if (model.of_folder) flags.push_back("--model.ignore_fields=" + o.ignored);
  request["of_folder"] = model.of_folder;
  request["checkpoint"] = model.checkpoint;
  LOCKSTEP_TRY(const auto worker, worker_program());
  LOCKSTEP_TRY(const launcher::ProgramOutput output,
               launcher::run_program(worker, flags, request.dump()));
  std::cout << output.standard_output;
  return output.exit_status;  // its own words are on standard error
}

// Ids of another tokenizer are other words to the model.
void compare_tokenizers(const EvalOptions& o, const SampledModel& model) {
  if (!model.of_folder) return;
  Config config;
  config.model.hf_assets_path = o.path;
  config.data.path = o.shards;
  const DataTokenizer found = data_tokenizer(posix_file_system(), config);
  if (found.match == TokenizerMatch::kOther) log_warning(found.difference);
}

// Tokens that the model sees at once, where the data do not say it.
int64_t default_length(const SampledModel& model) {
  return model.trained_length > 0 ? model.trained_length : kSeqLen;
}

const std::string& tokenizer_of(const EvalOptions& o) {
  return o.tokenizer.empty() ? o.path : o.tokenizer;
}

Result<int> evaluate_shards(const EvalOptions& o, const SampledModel& model,
                            const std::filesystem::path& folder, const std::string& split) {
  LOCKSTEP_TRY(const data::DatasetManifest manifest,
               data::read_manifest(posix_file_system(), folder));
  int64_t seq_len = o.seq_len > 0 ? o.seq_len : manifest.recipe.packed_seq_len;
  if (seq_len == 0) seq_len = default_length(model);
  if (manifest.recipe.packed_seq_len == 0)
    seq_len = std::min(seq_len, std::max<int64_t>(1, manifest.tokens(split) - 1));
  const int64_t rows = std::max<int64_t>(1, kBatchTokens / seq_len);
  return run_worker(o, model,
                    {text("--data.path=", folder.string()), text("--training.seq_len=", seq_len),
                     text("--training.local_batch_size=", rows), "--training.slots=1"},
                    {{"tokens", ""}, {"split", split}});
}

// `auto` is the template of the folder, or that of the run's data.
Result<void> take_records(const EvalOptions& o, const SampledModel& model,
                          std::optional<data::RecordFormat>& records) {
  std::string folder = tokenizer_of(o);
  RecordFlags flags = o.records;
  if (!model.of_folder && flags.records.chat_template == "auto") {
    if (!model.chat_template.empty()) flags.records.chat_template = model.chat_template;
    if (model.chat_template.empty() && model.chat_folder.empty())
      return Error{Code::kConfig, model.no_chat_template};
    folder = model.chat_folder;
    if (flags.chat_date.empty()) flags.chat_date = model.chat_date;
  }
  LOCKSTEP_TRY(records, record_format(flags, folder));
  std::vector<std::pair<std::string, std::string>> unused;  // of a folder that stays
  return find_template(records, flags.chat_date, folder, *model.tokenizer, unused);
}

// By way of a folder of shards, which goes.
Result<int> evaluate_text(const EvalOptions& o, SampledModel& model) {
  LOCKSTEP_TRY(const launcher::ScratchFolder scratch, launcher::ScratchFolder::create());
  if (model.of_folder) {
    LOCKSTEP_TRY(auto opened, data::open_tokenizer(posix_file_system(), tokenizer_of(o)));
    model.tokenizer = std::move(opened.tokenizer);
  }
  data::PrepareOptions options;
  options.out = scratch.path() / "tokens";
  options.val_millionths = 0;
  options.threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  LOCKSTEP_RETURN_IF_ERROR(take_records(o, model, options.records));
  options.inputs.assign(o.inputs.begin(), o.inputs.end());
  LOCKSTEP_RETURN_IF_ERROR(tables_become_lines(options, scratch.path()));
  if (options.records) options.pack_seq_len = o.seq_len > 0 ? o.seq_len : default_length(model);
  LOCKSTEP_RETURN_IF_ERROR(data::prepare(posix_file_system(), *model.tokenizer, options));
  return evaluate_shards(o, model, options.out, "train");
}

// A folder's tokenizer is opened where text is to be read: ids alone need none.
Result<SampledModel> open_model(const EvalOptions& o) {
  FileSystem& file_system = posix_file_system();
  const std::filesystem::path path = o.path;
  if (!file_system.exists(path)) return Error{Code::kConfig, hf::no_such_folder(o.path)};
  if (o.of_folder ||
      (file_system.exists(path / "config.json") && !file_system.exists(path / "run_args.json"))) {
    SampledModel model;
    model.of_folder = true;
    model.flags = {"--model.hf_assets_path=" + o.path};
    return model;
  }
  return open_sampled_model(file_system, o.path, o.tokenizer);
}

// Without --hf the first of the inputs is the model.
Result<void> take_model(EvalOptions& o) {
  o.of_folder = !o.path.empty();
  if (o.path.empty() && !o.inputs.empty()) {
    o.path = o.inputs.front();
    o.inputs.erase(o.inputs.begin());
  }
  if (o.path.empty())
    return Error{Code::kConfig,
                 "lockstep eval needs a MODEL: a run's folder, a checkpoint, or a Hugging Face "
                 "folder; see `lockstep eval --help`"};
  return {};
}

Result<int> evaluate(EvalOptions o) {
  LOCKSTEP_RETURN_IF_ERROR(take_model(o));
  LOCKSTEP_TRY(SampledModel model, open_model(o));
  if (!model.of_folder && o.inputs.empty() && o.shards.empty() && o.tokens.empty()) {
    LOCKSTEP_TRY(const auto path, data_path_of_run(posix_file_system(), model.run));
    o.shards = path.string();
    log_info("evaluating the ", o.split, " split of ", o.shards);
  }
  if (o.inputs.empty() + o.shards.empty() + o.tokens.empty() != 2)
    return Error{Code::kConfig,
                 "lockstep eval needs exactly one of INPUT…, --data and --tokens after the "
                 "model; see `lockstep eval --help`"};
  if (!o.tokens.empty())
    return run_worker(o, model, {}, {{"tokens", o.tokens}, {"logits", o.logits}});
  if (!o.inputs.empty()) return evaluate_text(o, model);
  compare_tokenizers(o, model);
  return evaluate_shards(o, model, o.shards, o.split);
}

void add_options(CLI::App& app, EvalOptions& o) {
  app.add_option("MODEL", o.inputs,
                 "A run's folder, a checkpoint or a Hugging Face folder; then the texts or JSON "
                 "lines: files, and folders of them")
      ->type_name("[INPUT…]");
  app.add_option("--hf", o.path, "A Hugging Face folder in MODEL's place")->type_name("DIR");
  app.add_option("--model.ignore_fields", o.ignored,
                 "Fields of config.json that change no arithmetic: they are passed over")
      ->type_name("A,B");
  add_record_flags(app, o.records);
  app.add_option("--tokenizer", o.tokenizer,
                 "Tokenizer of INPUT if a Hugging Face folder has none, as for `lockstep prepare`");
  app.add_option("--data", o.shards, "A folder that `lockstep prepare` made")->type_name("DIR");
  app.add_option("--split", o.split, "With --data: train or val")
      ->check(CLI::IsMember({"train", "val"}))
      ->capture_default_str();
  app.add_option("--seq-len", o.seq_len,
                 text("Tokens that the model sees at once in text and shards (default: ", kSeqLen,
                      ", what a run trained on, or the packed length)"))
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
