#include "cli/export/export_command.h"

#include <CLI/CLI.hpp>
#include <iostream>

#include "base/log.h"
#include "base/text.h"
#include "checkpoint/record/catalog.h"
#include "checkpoint/save/retention.h"
#include "cli/shared/command_words.h"
#include "cli/shared/jinja_python.h"
#include "cli/shared/model_tokenizer.h"
#include "cli/shared/run_args.h"
#include "data/prepare/chat_jinja.h"
#include "data/prepare/chat_probe.h"
#include "data/prepare/chat_template.h"
#include "hf/configured_model.h"
#include "hf/hf_export.h"

namespace lockstep::cli {
namespace {

constexpr const char* kExportAbout =
    R"(Writes the weights of a checkpoint as a Hugging Face folder: *.safetensors (in files of at
most --max-file-gb), config.json, and the tokenizer's files.

config.json comes from --hf, or else from the folder that the run started from
(model.hf_assets_path). For a run that [model] keys describe, a config.json is made. The tokenizer
is that of --hf, or else the one that the run's data were prepared with, in a form that
transformers' AutoTokenizer loads. For a run on conversations, chat_template.jinja holds the chat
template that they were prepared with, and generation_config.json names the token that ends an
answer.

For a run with lora.rank the adapters are added to the weights of the base model, so the folder
needs no PEFT. --lora writes the adapters alone, as PEFT stores them: adapter_config.json and
adapter_model.safetensors.

Examples:
  lockstep export results/training/demo exported
  lockstep export results/training/qwen exported --dtype bfloat16
  lockstep export --lora results/training/chess adapters
  lockstep export --best results/training/sft exported        # by validation loss, not the newest
  lockstep export checkpoints/step_00001000.g3-7f2a91 exported --hf models/Qwen3-0.6B
)";

struct ExportOptions {
  std::string checkpoint, folder, assets, dtype = "float32";
  double max_file_gb = 5;
  int threads = 2;
  bool lora = false, best = false;
};

// The checkpoint that was named: with --best that of the lowest validation loss, else the newest.
Result<std::filesystem::path> chosen(FileSystem& file_system, const ExportOptions& o) {
  if (!o.best) return checkpoint::find_checkpoint(file_system, o.checkpoint);
  LOCKSTEP_TRY(const auto entries,
               checkpoint::list_checkpoints(
                   file_system, checkpoint::checkpoint_folder_of(file_system, o.checkpoint)));
  if (const checkpoint::CatalogEntry* const best = checkpoint::best_of(entries))
    return best->directory;
  return Error{
      Code::kConfig,
      text(o.checkpoint, ": --best needs checkpoints with a validation loss, but none of the ",
           entries.size(),
           " checkpoints has one; set validation.freq and checkpoint.keep_best in the run")};
}

// The model's config: that of --hf, or of the run which the checkpoint lies in.
Result<Config> config_for(FileSystem& file_system, const ExportOptions& o,
                          const std::filesystem::path& checkpoint) {
  std::vector<std::string> flags{"--model.hf_assets_path=" + o.assets};
  auto from_run = run_flags(file_system, checkpoint.parent_path().parent_path());
  if (!o.assets.empty() && from_run.ok()) {  // what config.json does not say
    for (const std::string& flag : from_run.value())
      if (flag.starts_with("--lora.") || flag.starts_with("--model.init=")) flags.push_back(flag);
  }
  if (o.assets.empty()) {
    if (!from_run.ok())
      return Error{Code::kConfig,
                   text(from_run.error().message,
                        "; or give --hf DIR, a folder with the config.json of the model")};
    flags = std::move(from_run).value();
  }
  LOCKSTEP_TRY(ParsedConfig parsed, parse_config("", flags));
  if (!o.assets.empty()) parsed.config.training.seq_len = 1;  // says nothing about the model
  return std::move(parsed.config);
}

// The template of the folder of the model, if it renders as `name`.
bool has_template(FileSystem& file_system, const DataTokenizer& of_data, const std::string& assets,
                  const std::string& name) {
  const auto found =
      data::find_chat_template(file_system, assets, *of_data.tokenizer, "", jinja_python());
  return found.ok() && found.value().name == name;
}

// A template that Jinja renders goes along as it is.
std::string carry_jinja(FileSystem& file_system, const DataTokenizer& of_data, hf::HfExport& job) {
  const auto source = data::chat_template_of_folder(file_system, of_data.chat.folder);
  if (!source.ok()) return "no chat template was written: " + source.error().message;
  job.ends = {of_data.tokenizer->end_of_document()};
  const auto found = data::find_chat_template(file_system, of_data.chat.folder, *of_data.tokenizer,
                                              of_data.chat.date, jinja_python());
  if (found.ok())
    if (const auto words =
            data::ChatTemplate::create(found.value().name, *of_data.tokenizer, found.value().jinja);
        words.ok())
      job.ends = {words.value().end_of_answer(), of_data.tokenizer->end_of_document()};
  job.chat_template = source.value().jinja;
  return "the chat template is that of the data";
}

// The chat template that the data were made with goes along, unless the tokenizer's files that do
// hold the same one; and transformers gets to know where an answer ends. A line about it.
std::string choose_chat_template(FileSystem& file_system, const DataTokenizer& of_data,
                                 hf::HfExport& job) {
  if (!of_data.chat.folder.empty()) return carry_jinja(file_system, of_data, job);
  const std::string& name = of_data.chat.name;
  if (name.empty()) return "";
  const auto words = data::ChatTemplate::create(name, *of_data.tokenizer);
  if (!words.ok()) return "no chat template was written: " + words.error().message;
  job.ends = {words.value().end_of_answer(), of_data.tokenizer->end_of_document()};
  std::string had;
  if (job.carry_tokenizer) {
    if (has_template(file_system, of_data, job.assets, name)) return "";
    const auto there = data::chat_template_of_folder(file_system, job.assets);
    if (there.ok()) had = text(", in place of that in ", there.value().file.string());
  }
  job.chat_template = data::chat_template_in_jinja(name, *of_data.tokenizer);
  return text("the chat template is that of the data, ", name, had);
}

// What the folder gets of a tokenizer, and a line about it.
std::string choose_tokenizer(const DataTokenizer& of_data, hf::HfExport& job) {
  const bool made_here = of_data.tokenizer != nullptr;
  job.carry_tokenizer = !made_here || of_data.match == TokenizerMatch::kSame;
  if (job.carry_tokenizer)
    return job.assets.empty() ? "no tokenizer was written: cannot find the data of the run" : "";
  const data::Tokenizer& tokenizer = *of_data.tokenizer;
  const uint32_t end = tokenizer.end_of_document();
  const auto name = tokenizer.decode({&end, 1}, /*show_special=*/true);
  job.tokenizer = hf::for_transformers(of_data.files, name ? name.value() : "");
  const std::string why = of_data.difference.empty() ? "" : "; " + of_data.difference;
  return job.tokenizer.empty()
             ? text("no tokenizer was written: the data are ", tokenizer.name(), "s", why)
             : text("the tokenizer is that of the data, ", tokenizer.name(), why);
}

Result<void> run(const ExportOptions& o) {
  FileSystem& file_system = posix_file_system();
  hf::HfExport job;
  LOCKSTEP_TRY(job.checkpoint, chosen(file_system, o));
  LOCKSTEP_TRY(const Config config,
               config_for(file_system, o, std::filesystem::absolute(job.checkpoint)));
  LOCKSTEP_TRY(job.spec, hf::configured_model(config, 0));
  job.lora = config.lora;
  job.random_base = config.model.init == InitialWeights::kRandom;
  job.adapters_alone = o.lora;
  if (o.lora && !job.spec.adapted())
    return Error{Code::kConfig,
                 text(job.checkpoint.string(),
                      ": --lora writes adapters, but this run trained none (lora.rank is 0)")};
  job.folder = o.folder;
  job.assets = config.model.hf_assets_path;
  job.dtype = *choice_of<FloatType>(o.dtype);  // CLI11 has checked it
  job.seq_len = config.training.seq_len;
  job.threads = o.threads;
  job.max_file_bytes = static_cast<int64_t>(o.max_file_gb * 1e9);
  const DataTokenizer of_data =
      o.assets.empty() ? data_tokenizer(file_system, config) : DataTokenizer{};
  const std::string about[] = {choose_tokenizer(of_data, job),
                               choose_chat_template(file_system, of_data, job)};
  LOCKSTEP_TRY(const hf::HfExportReport report, hf::export_to_hf(file_system, job));
  std::cout << job.checkpoint.string() << " -> " << o.folder << ": " << report.tensors
            << " tensors, " << bytes_text(static_cast<uint64_t>(report.bytes)) << " of " << o.dtype
            << " in " << report.files << (report.files == 1 ? " file\n" : " files\n");
  for (const std::string& line : about)
    if (!o.lora && !line.empty()) std::cout << line << "\n";
  return {};
}

}  // namespace

int export_command(int argc, char** argv) {
  ExportOptions o;
  CLI::App app{kExportAbout, "lockstep export"};
  app.add_option("CHECKPOINT", o.checkpoint, "Checkpoint, checkpoint folder or run folder")
      ->required();
  app.add_option("DIR", o.folder, "Folder to create")->required();
  app.add_option("--hf", o.assets, "Folder with the model's config.json and tokenizer")
      ->type_name("DIR");
  app.add_flag("--lora", o.lora, "Write the adapters alone, as PEFT stores them");
  app.add_flag("--best", o.best, "Take the checkpoint with the lowest validation loss");
  app.add_option("--dtype", o.dtype, "float32 | bfloat16")
      ->check(CLI::IsMember({"float32", "bfloat16"}))
      ->capture_default_str();
  app.add_option("--max-file-gb", o.max_file_gb, "Weights are split into files of at most this")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--threads", o.threads, "Decoding threads")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  if (const auto end = parse_words(app, argc, argv)) return *end;
  const auto done = run(o);
  if (done.ok()) return 0;
  log_error(done.error().message);
  // What is not there was named wrongly.
  return exit_status(done.error().code == Code::kNotFound ? Code::kConfig : done.error().code);
}

}  // namespace lockstep::cli
