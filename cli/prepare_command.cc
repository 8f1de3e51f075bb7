#include "cli/prepare_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <iostream>
#include <string>

#include "base/text.h"
#include "cli/progress_line.h"
#include "data/prepare.h"
#include "data/tokenizer/open_tokenizer.h"

namespace lockstep::cli {

namespace {

constexpr const char* kExamples = R"(Examples:
  lockstep prepare book.txt --out data/book
  lockstep prepare texts/ more.txt --out data/all --val-fraction 0.02
  lockstep train examples/demo.toml --data.path data/book

A file is a document; a folder gives all its files, also in subfolders. Text must be UTF-8.
Interrupted, the same command starts over; finished, it says "up to date" and does nothing.)";

int fail(const Error& error) {
  std::cerr << "lockstep prepare: " << error.message << "\n";
  return exit_status(error.code);
}

void print_summary(const data::PrepareReport& report, const data::PrepareOptions& options) {
  const data::DatasetManifest& manifest = report.manifest;
  std::cout << options.out.string() << ": " << (report.up_to_date ? "up to date, " : "")
            << grouped(manifest.recipe.documents) << " documents, "
            << grouped(manifest.tokens("train")) << " training and "
            << grouped(manifest.tokens("val")) << " validation tokens, vocabulary "
            << manifest.vocab_size << " (" << manifest.tokenizer << "), manifest " << manifest.hash
            << "\n";
  if (options.val_millionths > 0 && manifest.tokens("val") == 0)
    std::cerr << "lockstep prepare: warning: no text fell into the validation split; "
                 "raise --val-fraction or add text if you want validation losses\n";
}

}  // namespace

int prepare_command(int argc, char** argv) {
  CLI::App app("Turns text into token shards that `lockstep train` reads.", "lockstep prepare");
  data::PrepareOptions options;
  std::vector<std::string> inputs;
  std::string out, tokenizer_name = "byte";
  double val_fraction = 0.05;
  app.add_option("INPUT", inputs, "Text files, and folders of them")->required();
  app.add_option("--out", out, "Folder to make")->required()->type_name("DIR");
  app.add_option("--tokenizer", tokenizer_name, "byte: the 256 bytes and end of document")
      ->capture_default_str();
  app.add_option("--val-fraction", val_fraction, "Share of the text held out for validation")
      ->check(CLI::Range(0.0, 0.5))
      ->capture_default_str();
  app.add_option("--shard-tokens", options.shard_tokens, "Tokens in a full shard file")
      ->capture_default_str();
  app.add_flag("--force", options.force, "Replace a folder that was made from something else");
  app.footer(kExamples);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : exit_status(Code::kConfig);
  }
  options.inputs.assign(inputs.begin(), inputs.end());
  options.out = out;
  options.val_millionths = std::llround(val_fraction * 1e6);

  const auto tokenizer = data::open_tokenizer(posix_file_system(), tokenizer_name);
  if (!tokenizer.ok()) return fail(tokenizer.error());
  ProgressLine progress("prepare");
  options.on_progress = [&](int64_t done, int64_t total) { progress.show(done, total); };
  const auto report = data::prepare(posix_file_system(), *tokenizer.value().tokenizer, options);
  progress.end();
  if (!report.ok()) return fail(report.error());
  print_summary(report.value(), options);
  return 0;
}

}  // namespace lockstep::cli
