// lockstep checkpoint reshard, export, import, index: what makes new files from a checkpoint.
#include <iostream>
#include <memory>

#include "base/clock.h"
#include "base/text.h"
#include "checkpoint/shard_file/index_file.h"
#include "checkpoint/tools/export.h"
#include "checkpoint/tools/import.h"
#include "checkpoint/tools/reshard.h"
#include "cli/checkpoint/checkpoint_tool.h"
#include "cli/shared/progress_line.h"
#include "cli/shared/size_words.h"

namespace lockstep::cli {
namespace {

using nlohmann::ordered_json;
using Path = std::filesystem::path;

constexpr const char* kReshardExamples = R"(Examples:
  lockstep checkpoint reshard results/training/demo resharded/ --world-size 8
  lockstep checkpoint reshard results/training/demo one_file/ --world-size 1 --codec gzip

Writes the same step and state into DST (a new folder, or one of checkpoints) as N ranks would have.
Training does not need it: a checkpoint loads at any world size. DST must have no checkpoint of that
step, and no run may be training in it.)";
constexpr const char* kExportExamples = R"(Examples:
  lockstep checkpoint export results/training/demo weights/
  lockstep checkpoint export results/training/demo weights/ --dtype bf16 --max-shard-size 2GB
  lockstep checkpoint export results/training/demo all/ --kind all

Writes OUT/model.safetensors, or numbered files and model.safetensors.index.json when it would be
larger than --max-shard-size. Tensors have their names in the checkpoint; with --kind all they are
param/NAME, adam_m/NAME, adam_v/NAME, and Muon's momentum/NAME. bf16 is rounded to nearest, ties to
even.)";
constexpr const char* kImportExamples = R"(Examples:
  lockstep checkpoint import weights/ imported/
  lockstep checkpoint import model.safetensors imported/ --with-optimizer zeros
  lockstep train run.toml --checkpoint.initial_load_path imported/

SRC is a .safetensors file or a folder of them. F32, BF16 and F16 become fp32; names stay. The
checkpoint is at step 0.)";
constexpr const char* kIndexExamples = R"(Examples:
  lockstep checkpoint index results/training/demo

Writes index.h5, whole tensors as HDF5 virtual datasets, which a save leaves out above 256 rank
files. It grows with tensors times ranks.)";

struct WriteOptions {
  std::string source, destination;
  std::string codec, dtype = "fp32", kind = "param", format = "safetensors";
  std::string max_shard_size = "5GB", with_optimizer = "none";
  int64_t world_size = 1;
  int threads = 2;
  bool json = false;
};

double now_s() { return system_clock().monotonic_s(); }

// What the commands that make one checkpoint print.
int report_directory(const char* tool, const WriteOptions& options, const Result<Path>& directory,
                     double start_s) {
  if (!directory.ok()) return fail_tool(tool, directory.error());
  const double seconds = now_s() - start_s;
  if (options.json)
    print_json({{"directory", directory.value().string()},
                {"world_size", options.world_size},
                {"seconds", seconds}});
  else
    std::cout << directory.value().string() << ": written in " << fixed(seconds, 2) << " s\n";
  return 0;
}

int reshard(const WriteOptions& options) {
  FileSystem& file_system = posix_file_system();
  const auto source = checkpoint::find_checkpoint(file_system, options.source);
  if (!source.ok()) return fail_tool("reshard", source.error());
  std::optional<Codec> codec;
  if (!options.codec.empty()) {
    const auto named = checkpoint::codec_from_name(options.codec);
    if (!named.ok()) return fail_tool("reshard", named.error());
    codec = named.value();
  }
  const double start_s = now_s();
  ProgressLine progress("reshard");
  const auto directory = checkpoint::reshard(
      file_system,
      {source.value(), checkpoint::checkpoint_folder_of(file_system, options.destination),
       options.world_size, codec, options.threads, checkpoint::fresh_nonce(system_clock())},
      [&](int64_t done, int64_t total) { progress.show(done, total); });
  progress.end();
  return report_directory("reshard", options, directory, start_s);
}

int import_tensors(const WriteOptions& options) {
  FileSystem& file_system = posix_file_system();
  const auto codec = checkpoint::codec_from_name(options.codec);
  if (!codec.ok()) return fail_tool("import", codec.error());
  const double start_s = now_s();
  ProgressLine progress("import");
  const auto directory = checkpoint::import_safetensors(
      file_system,
      {options.source, checkpoint::checkpoint_folder_of(file_system, options.destination),
       options.with_optimizer == "zeros", options.world_size, codec.value(), options.threads,
       checkpoint::fresh_nonce(system_clock())},
      [&](int64_t done, int64_t total) { progress.show(done, total); });
  progress.end();
  return report_directory("import", options, directory, start_s);
}

int export_tensors(const WriteOptions& options) {
  FileSystem& file_system = posix_file_system();
  const auto source = checkpoint::find_checkpoint(file_system, options.source);
  if (!source.ok()) return fail_tool("export", source.error());
  checkpoint::ExportOptions o;
  o.source = source.value();
  o.folder = options.destination;
  o.dtype = options.dtype == "bf16" ? checkpoint::Dtype::kBf16 : checkpoint::Dtype::kF32;
  o.threads = options.threads;
  const auto most = bytes_of_words(options.max_shard_size);
  if (!most)
    return fail_tool("export",
                     {Code::kConfig, text("--max-shard-size ", options.max_shard_size,
                                          " is not a size; use for example 5GB or 512MiB")});
  o.max_shard_bytes = *most;
  if (options.kind == "all")
    o.kinds = {std::begin(checkpoint::kAllKinds), std::end(checkpoint::kAllKinds)};
  else
    o.kinds = {*checkpoint::kind_from_name(options.kind)};
  const double start_s = now_s();
  ProgressLine progress("export");
  const auto files = checkpoint::export_safetensors(
      file_system, o, [&](int64_t done, int64_t total) { progress.show(done, total); });
  progress.end();
  if (!files.ok()) return fail_tool("export", files.error());
  const double seconds = now_s() - start_s;
  ordered_json json{{"source", o.source.string()}, {"seconds", seconds}};
  for (const Path& file : files.value()) json["files"].push_back(file.string());
  if (options.json)
    print_json(json);
  else
    std::cout << files.value().front().string()
              << (files.value().size() > 1 ? text(" and ", files.value().size() - 1, " more files")
                                           : "")
              << ": written in " << fixed(seconds, 2) << " s\n";
  return 0;
}

int index(const WriteOptions& options) {
  FileSystem& file_system = posix_file_system();
  const auto directory = checkpoint::find_checkpoint(file_system, options.source);
  if (!directory.ok()) return fail_tool("index", directory.error());
  const auto manifest = checkpoint::read_manifest(file_system, directory.value());
  if (!manifest.ok()) return fail_tool("index", manifest.error());
  const auto written = checkpoint::write_index(file_system, directory.value(), manifest.value());
  if (!written.ok()) return fail_tool("index", written.error());
  const std::string path = (directory.value() / checkpoint::kIndexName).string();
  if (options.json)
    print_json({{"index", path}});
  else
    std::cout << path << ": written\n";
  return 0;
}

std::shared_ptr<WriteOptions> add_options(CLI::App* command, const char* source_help) {
  auto options = std::make_shared<WriteOptions>();
  command->add_option("SRC", options->source, source_help)->required();
  command->add_flag("--json", options->json, "Machine-readable output");
  return options;
}

void add_writing_options(CLI::App* command, WriteOptions& options, const char* destination_help) {
  command->add_option("DST", options.destination, destination_help)->required();
  command->add_option("--codec", options.codec, "zstd, none, gzip")
      ->check(CLI::IsMember({"zstd", "none", "gzip"}))
      ->capture_default_str();
  add_threads_option(command, options.threads);
}

constexpr const char* kSourceHelp = "Checkpoint, checkpoint folder or run folder";
const auto kWorldSizes = CLI::Range(int64_t{1}, checkpoint::kMaxWrittenRanks);

void add_export(CLI::App& app, CheckpointTools& tools) {
  CLI::App* const command =
      add_tool(app, "export", "Write tensors as safetensors files", kExportExamples);
  const auto options = add_options(command, kSourceHelp);
  command->add_option("OUT", options->destination, "Folder for the files")->required();
  command->add_option("--format", options->format, "safetensors")
      ->check(CLI::IsMember({"safetensors"}))
      ->capture_default_str();
  command->add_option("--dtype", options->dtype, "fp32 or bf16")
      ->check(CLI::IsMember({"fp32", "bf16"}))
      ->capture_default_str();
  command->add_option("--kind", options->kind, "param, adam_m, adam_v, momentum or all")
      ->check(CLI::IsMember({"param", "adam_m", "adam_v", "momentum", "all"}))
      ->capture_default_str();
  command
      ->add_option("--max-shard-size", options->max_shard_size,
                   "Largest size of one file, for example 5GB or 512MiB")
      ->capture_default_str();
  add_threads_option(command, options->threads);
  tools.push_back({command, [options] { return export_tensors(*options); }});
}

}  // namespace

void add_write_tools(CLI::App& app, CheckpointTools& tools) {
  CLI::App* command = add_tool(
      app, "reshard", "Write the same state as another number of ranks would", kReshardExamples);
  auto options = add_options(command, kSourceHelp);
  command->add_option("--world-size", options->world_size, "Ranks to write for")
      ->required()
      ->check(kWorldSizes);
  add_writing_options(command, *options, "Folder for the new checkpoint");
  tools.push_back({command, [options] { return reshard(*options); }});

  add_export(app, tools);

  command = add_tool(app, "import", "Make a checkpoint of safetensors files", kImportExamples);
  options = add_options(command, ".safetensors file, or a folder of them");
  options->codec = "zstd";
  command->add_option("--world-size", options->world_size, "Ranks to write for")
      ->check(kWorldSizes)
      ->capture_default_str();
  command
      ->add_option("--with-optimizer", options->with_optimizer,
                   "none, or zeros: add an Adam state of zeros")
      ->check(CLI::IsMember({"none", "zeros"}))
      ->capture_default_str();
  add_writing_options(command, *options, "Folder for the new checkpoint");
  tools.push_back({command, [options] { return import_tensors(*options); }});

  command = add_tool(app, "index", "Write index.h5 for any number of ranks", kIndexExamples);
  options = add_options(command, kSourceHelp);
  tools.push_back({command, [options] { return index(*options); }});
}

}  // namespace lockstep::cli
