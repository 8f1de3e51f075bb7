#include "cli/prepare/prepare_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <iostream>
#include <optional>
#include <string>
#include <thread>

#include "base/text.h"
#include "cli/prepare/prepare_inspect.h"
#include "cli/prepare/prepare_report.h"
#include "cli/prepare/prepare_tables.h"
#include "cli/shared/command_words.h"
#include "cli/shared/exit_status.h"
#include "cli/shared/progress_line.h"
#include "cli/shared/record_flags.h"
#include "data/prepare/bpe_trainer.h"
#include "data/prepare/prepare.h"
#include "data/prepare/text_reader.h"
#include "data/tokenizer/definitions.h"
#include "data/tokenizer/open_tokenizer.h"
#include "launcher/host/scratch_folder.h"

namespace lockstep::cli {

namespace {

constexpr const char* kExamples = R"(Examples:
  lockstep prepare book.txt --out data/book
  lockstep prepare texts/ more.txt.gz --out data/all --tokenizer Meta-Llama-3-8B/tokenizer.json
  lockstep prepare web.jsonl.zst --text-field text --tokenizer gpt2/ --out data/web
  lockstep prepare parquets/ --text-field text --tokenizer gpt2/ --out data/wiki
  lockstep prepare texts/ --train-bpe 8192 --out data/own
  lockstep prepare games.jsonl --prompt-field prompt --response-field response --out data/games
  lockstep prepare chats.jsonl --chat-template auto --tokenizer Qwen2.5/ --out data/chats
  lockstep prepare chats.jsonl --chat-template chatml --tokenizer Qwen2.5/ --pack 4096 --out data/p
  lockstep prepare --inspect data/chats --sample 3
  lockstep train examples/demo.toml --data.path data/book

Each text file is a document. A folder stands for all its files, also in subfolders. Files may be
gzip or zstd. Text must be UTF-8. Each record of JSON lines, a JSON array, CSV or TSV is a document;
with a prompt or a chat only responses count in the loss (docs/DATA.md). A key that is not known is
an error, which --ignore-key KEY turns off. Parquet and Arrow files become JSON lines in a temporary
folder first, by Python with pyarrow (LOCKSTEP_PYTHON, else python3).
Interrupted, the same command starts over; finished, it says "up to date" and does nothing.)";

int fail(const Error& error) {
  std::cerr << "lockstep prepare: " << error.message << "\n";
  return status_of_input(error.code);
}

// What holds out some text, where none was, in hundredths.
std::string advice_on_split(const data::PrepareReport& report) {
  const int64_t hundredths = report.least_place.value_or(data::kMaxValMillionths) / 10'000 + 1;
  if (hundredths * 10'000 > data::kMaxValMillionths)
    return "; raise --val-fraction or add text if you want validation losses";
  return text("; give --val-fraction ", fixed(static_cast<double>(hundredths) / 100, 2),
              " or more text to hold some out, or train with validation.freq = 0");
}

void print_summary(const data::PrepareReport& report, const data::PrepareOptions& options) {
  const data::DatasetManifest& manifest = report.manifest;
  std::cout << options.out.string() << ": " << (report.up_to_date ? "up to date, " : "")
            << grouped(manifest.recipe.documents)
            << (manifest.recipe.documents == 1 ? " file, " : " files, ")
            << grouped(manifest.tokens("train")) << " training and "
            << grouped(manifest.tokens("val")) << " validation tokens, vocabulary "
            << manifest.vocab_size << " (" << manifest.tokenizer << "), manifest " << manifest.hash
            << "\n";
  if (options.pack_seq_len > 0)
    std::cout << "packed into samples of " << options.pack_seq_len << " tokens; "
              << fixed(100.0 * static_cast<double>(manifest.filling_tokens) /
                           static_cast<double>(manifest.tokens("train") + manifest.tokens("val")),
                       2)
              << " % of them are padding\n";
  if (options.val_millionths > 0 && manifest.tokens("val") == 0)
    std::cerr << "lockstep prepare: warning: no text fell into the validation split"
              << advice_on_split(report) << "\n";
}

// Files of folders that say what the data is.
Result<void> print_passed_over(const data::PrepareOptions& options) {
  LOCKSTEP_TRY(const data::DocumentList list,
               data::list_inputs(posix_file_system(), options.inputs));
  for (const auto& path : list.passed_over)
    std::cout << path.string() << ": passed over, for it says what the folder's data is; give it "
              << "as an input of its own if it is text to learn\n";
  return {};
}

// What the command line says.
struct Words {
  data::PrepareOptions options;
  std::vector<std::string> inputs;
  std::string out, tokenizer = "byte";
  int64_t train_bpe = 0;  // 0: none
  RecordFlags records;
  double val_fraction = 0.05;
  std::string report = "text";  // or json
  InspectOptions inspect;
};

void add_options(CLI::App& app, Words& words) {
  app.add_option("INPUT", words.inputs, "Files, and folders of them");
  app.add_option("--out", words.out, "Folder to create")->type_name("DIR");
  app.add_option("--tokenizer", words.tokenizer,
                 "byte (the 256 bytes and end of document), or a file or folder: tokenizer.json, "
                 "encoder.json with vocab.bpe, a tiktoken rank file, tekken.json, a SentencePiece "
                 "model")
      ->capture_default_str();
  app.add_option("--train-bpe", words.train_bpe,
                 "First learn a byte-level BPE vocabulary of this many tokens from the input; it "
                 "is stored in DIR/tokenizer/tokenizer.json")
      ->type_name("N")
      ->check(CLI::Range(int64_t{1}, data::kMaxTrainedVocab))
      ->excludes("--tokenizer");
  add_record_flags(app, words.records);
  app.add_option("--val-fraction", words.val_fraction, "Share of the text held out for validation")
      ->check(CLI::Range(0.0, 0.5))
      ->capture_default_str();
  app.add_option("--shard-tokens", words.options.shard_tokens, "Tokens in a full shard file")
      ->capture_default_str();
  app.add_option("--pack", words.options.pack_seq_len,
                 "Pack whole documents into samples of T tokens, for training.seq_len = T")
      ->type_name("T")
      ->check(CLI::Range(int64_t{2}, int64_t{1} << 22));
  app.add_option("--threads", words.options.threads,
                 "Threads that tokenize; the result does not depend on them")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app.add_option("--report", words.report,
                 "json: one JSON object on standard output says what was understood and made")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  app.add_flag("--as-text", words.options.as_text,
               "Learn files that hold JSON or tables as they are, with their punctuation");
  app.add_flag("--force", words.options.force, "Replace a folder that was prepared differently");
  app.add_option("--inspect", words.inspect.folder, "Show a sample of a prepared folder as text")
      ->type_name("DIR");
  app.add_option("--sample", words.inspect.sample, "With --inspect: number of the sample")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--seq-len", words.inspect.seq_len, "With --inspect: tokens of a sample")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--split", words.inspect.split, "With --inspect: train or val")
      ->check(CLI::IsMember({"train", "val"}))
      ->capture_default_str();
  app.footer(kExamples);
}

// The one that --tokenizer names, or one learnt from the input.
Result<data::OpenedTokenizer> tokenizer_of(const Words& words, data::PrepareOptions options) {
  if (words.train_bpe == 0) return data::open_tokenizer(posix_file_system(), words.tokenizer);
  ProgressLine progress("learning");
  options.on_progress = [&](int64_t done, int64_t total) { progress.show(done, total); };
  LOCKSTEP_TRY(std::string definition,
               data::train_tokenizer(posix_file_system(), options, words.train_bpe));
  data::OpenedTokenizer opened;
  LOCKSTEP_TRY(opened.tokenizer, data::parse_tokenizer_json(definition, ""));
  opened.files = {{"tokenizer.json", std::move(definition)}};
  return opened;
}

Result<void> run_prepare(Words& words) {
  if (words.inputs.empty() || words.out.empty())
    return Error{Code::kConfig,
                 "lockstep prepare needs INPUT and --out DIR, or --inspect DIR; see `lockstep "
                 "prepare --help`"};
  data::PrepareOptions& options = words.options;
  options.inputs.assign(words.inputs.begin(), words.inputs.end());
  options.out = words.out;
  options.val_millionths = std::llround(words.val_fraction * 1e6);
  LOCKSTEP_TRY(options.records,
               record_format(words.records, words.train_bpe > 0 ? "" : words.tokenizer));
  const bool as_json = words.report == "json";
  if (!as_json) LOCKSTEP_RETURN_IF_ERROR(print_passed_over(options));
  std::optional<launcher::ScratchFolder> lines;  // of tables; gone at the end
  if (std::any_of(options.inputs.begin(), options.inputs.end(), has_tables)) {
    LOCKSTEP_TRY(auto scratch, launcher::ScratchFolder::create());
    lines.emplace(std::move(scratch));
    LOCKSTEP_RETURN_IF_ERROR(tables_become_lines(options, lines->path()));
  }
  LOCKSTEP_TRY(data::OpenedTokenizer opened, tokenizer_of(words, options));
  LOCKSTEP_RETURN_IF_ERROR(find_template(options.records, words.records.chat_date, words.tokenizer,
                                         *opened.tokenizer, opened.files));
  options.tokenizer_files = std::move(opened.files);
  ProgressLine progress("prepare");
  options.on_progress = [&](int64_t done, int64_t total) { progress.show(done, total); };
  int64_t first_records = 0;
  options.on_understood = [&](const data::Understanding& first) {
    progress.end();
    first_records = first.records;
    if (!as_json) print_understood(first, *options.records, *opened.tokenizer);
  };
  const auto report = data::prepare(posix_file_system(), *opened.tokenizer, options);
  progress.end();
  if (!report.ok()) return report.error();
  if (as_json) {
    std::cout << report_as_json(report.value(), options, *opened.tokenizer) << "\n";
    return {};
  }
  if (report.value().understood.records > first_records)
    print_records("all ", report.value().understood);
  print_summary(report.value(), options);
  return {};
}

}  // namespace

int prepare_command(int argc, char** argv) {
  CLI::App app("Turns text into token shards that `lockstep train` reads.", "lockstep prepare");
  Words words;
  words.options.threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  add_options(app, words);
  if (const auto end = parse_words(app, argc, argv)) return *end;
  const auto done =
      words.inspect.folder.empty() ? run_prepare(words) : inspect_sample(words.inspect, std::cout);
  return done.ok() ? 0 : fail(done.error());
}

}  // namespace lockstep::cli
