// lockstep checkpoint list, inspect, verify.
#include <algorithm>
#include <iomanip>
#include <iostream>
#include <memory>
#include <set>
#include <string>

#include "base/clock.h"
#include "base/json.h"
#include "base/text.h"
#include "checkpoint/record/catalog.h"
#include "checkpoint/save/retention.h"
#include "checkpoint/tools/verify.h"
#include "cli/checkpoint/checkpoint_tool.h"
#include "cli/shared/progress_line.h"

namespace lockstep::cli {

namespace {

using checkpoint::CatalogEntry;
using checkpoint::Manifest;
using nlohmann::ordered_json;
using Path = std::filesystem::path;

constexpr const char* kListExamples = R"(Examples:
  lockstep checkpoint list results/training/demo
  lockstep checkpoint list results/training/demo --json | jq '.[0].directory'

The newest comes first. One of which a file is missing is marked; `verify` reads the files. Exit
status 1: none of them can be used.)";
constexpr const char* kInspectExamples = R"(Examples:
  lockstep checkpoint inspect results/training/demo            # the newest one
  lockstep checkpoint inspect results/training/demo/checkpoints/step_00000100.g1-7f2a91
  lockstep checkpoint inspect results/training/demo --json | jq .trainer_state)";
constexpr const char* kVerifyExamples = R"(Examples:
  lockstep checkpoint verify results/training/demo             # the newest one
  lockstep checkpoint verify results/training/demo --threads 4 --json

Of a folder, the newest checkpoint with a manifest is read, even if it is damaged and a resume would
skip it. Exit status 1: something is damaged; each damaged place is printed. A missing index.h5 is
printed too; it is no damage, because no load reads it.)";

struct LookOptions {
  std::string directory;
  bool json = false;
  int threads = 2;
};

// Says of an entry with a manifest which file of it is not there; looks at names alone.
void note_missing_files(FileSystem& file_system, CatalogEntry& entry) {
  if (!entry.committed) return;
  const auto manifest = checkpoint::read_manifest(file_system, entry.directory);
  const auto names = file_system.list(entry.directory);
  std::string missing;
  if (!manifest.ok()) missing = manifest.error().message;
  if (!names.ok()) missing = names.error().message;
  if (manifest.ok() && names.ok()) {
    const std::set<std::string> there(names.value().begin(), names.value().end());
    size_t count = 0;
    for (const auto& file : manifest.value().files)
      if (!there.contains(file.name) && ++count == 1) missing = text(file.name, " is missing");
    if (count > 1) missing += text(", and ", count - 1, " more");
  }
  if (missing.empty()) return;
  entry.committed = false;
  entry.problem = missing;
}

int list(const LookOptions& options) {
  FileSystem& file_system = posix_file_system();
  auto listed = checkpoint::list_checkpoints(
      file_system, checkpoint::checkpoint_folder_of(file_system, options.directory));
  if (!listed.ok()) return fail_tool("list", listed.error());
  auto& entries = listed.value();
  for (CatalogEntry& entry : entries) note_missing_files(file_system, entry);
  const CatalogEntry* const best = checkpoint::best_of(entries);
  ordered_json json = ordered_json::array();
  for (const CatalogEntry& e : entries) {
    json.push_back(
        {{"directory", e.directory.string()},
         {"step", e.step},
         {"generation", e.generation},
         {"committed", e.committed},
         {"suspect", e.suspect},
         {"size_bytes", e.size_bytes},
         {"problem", e.problem},
         {"validation_loss", e.validation_loss ? ordered_json(*e.validation_loss) : ordered_json()},
         {"best", &e == best}});
    if (options.json) continue;
    std::cout << std::setw(10) << e.step << "  " << std::setw(11)
              << (e.committed ? bytes_text(static_cast<uint64_t>(e.size_bytes)) : "-") << "  "
              << e.directory.filename().string() << (e.committed ? "" : "  NOT USABLE: ")
              << e.problem << (e.suspect ? "  SUSPECT: an audit found wrong bits" : "")
              << (e.validation_loss ? text("  validation loss ", fixed(*e.validation_loss, 5)) : "")
              << (&e == best ? ", the lowest" : "") << "\n";
  }
  if (options.json)
    print_json(json);
  else if (entries.empty())
    std::cout << "no checkpoints\n";
  const bool usable =
      std::any_of(entries.begin(), entries.end(), [](const CatalogEntry& e) { return e.usable(); });
  return usable ? 0 : 1;
}

struct KindTotal {
  int64_t tensors = 0, elements = 0;
  std::set<std::string> dtypes;
};

std::map<std::string, KindTotal> totals_of(const Manifest& manifest) {
  std::map<std::string, KindTotal> totals;
  for (const auto& tensor : manifest.tensors)
    for (const auto& [kind, ignored] : tensor.fingerprint) {
      ++totals[kind].tensors;
      totals[kind].elements += checkpoint::element_count(tensor.global_shape);
      totals[kind].dtypes.insert(
          checkpoint::dtype_word(tensor.dtype_of(*checkpoint::kind_from_name(kind))));
    }
  return totals;
}

void inspect_json(const Path& directory, const Manifest& m) {
  ordered_json json{{"directory", directory.string()},
                    {"format_version", m.format_version},
                    {"step", m.step},
                    {"generation", m.generation},
                    {"world_size", m.world_size},
                    {"created_utc", m.created_utc},
                    {"codec", m.codec},
                    {"trainer_state", parse_json<ordered_json>(m.trainer_state)},
                    {"files", ordered_json::array()},
                    {"tensors", ordered_json::array()}};
  for (const auto& file : m.files)
    json["files"].push_back({{"name", file.name},
                             {"size_bytes", file.size_bytes},
                             {"pieces", file.pieces.size()},
                             {"chunks", file.chunk_rows}});
  for (const auto& tensor : m.tensors) {
    json["tensors"].push_back({{"name", tensor.name},
                               {"global_shape", tensor.global_shape},
                               {"fingerprint", tensor.fingerprint}});
    for (const auto& [kind, dtype] : tensor.dtypes)
      json["tensors"].back()["dtype"][kind] = checkpoint::dtype_word(dtype);
  }
  print_json(json);
}

void inspect_text(const Path& directory, const Manifest& m) {
  int64_t raw_bytes = 0, stored_bytes = 0;
  for (const auto& file : m.files) {
    stored_bytes += file.size_bytes;
    for (const auto& piece : file.pieces) raw_bytes += piece.size_bytes();
  }
  const double ratio =
      static_cast<double>(raw_bytes) / static_cast<double>(std::max<int64_t>(1, stored_bytes));
  std::cout << directory.string() << "\nstep " << m.step << "  generation " << m.generation
            << "  world_size " << m.world_size << "  written " << m.created_utc << "\n"
            << m.files.size() << " files, " << bytes_text(static_cast<uint64_t>(stored_bytes))
            << " for " << bytes_text(static_cast<uint64_t>(raw_bytes)) << " of state (" << m.codec
            << ", ratio " << fixed(ratio, 3) << ")\n";
  for (const auto& [kind, total] : totals_of(m))
    std::cout << std::left << std::setw(8) << kind << std::right << std::setw(6) << total.tensors
              << " tensors  " << grouped(total.elements) << " elements of " << *total.dtypes.begin()
              << (total.dtypes.size() > 1 ? " and others" : "") << "\n";
  for (const auto& tensor : m.tensors) {
    const auto param = tensor.fingerprint.find("param");
    std::cout << "  " << (param == tensor.fingerprint.end() ? "-" : param->second) << "  "
              << tensor.name << " " << checkpoint::shape_text(tensor.global_shape) << "\n";
  }
  std::cout << "trainer state " << m.trainer_state << "\n";
}

int inspect(const LookOptions& options) {
  const auto directory = checkpoint::find_checkpoint(posix_file_system(), options.directory);
  if (!directory.ok()) return fail_tool("inspect", directory.error());
  const auto manifest = checkpoint::read_manifest(posix_file_system(), directory.value());
  if (!manifest.ok()) return fail_tool("inspect", manifest.error());
  if (options.json)
    inspect_json(directory.value(), manifest.value());
  else
    inspect_text(directory.value(), manifest.value());
  return 0;
}

// "": it is there, or the save made none. No load reads it.
std::string missing_index(FileSystem& file_system, const Path& directory) {
  const auto manifest = checkpoint::read_manifest(file_system, directory);
  const bool made = manifest.ok() && !manifest.value().index_xxh3.empty();
  if (!made || file_system.exists(directory / checkpoint::kIndexName)) return "";
  return text((directory / checkpoint::kIndexName).string(),
              " is missing; no load reads it, and `lockstep checkpoint index` makes it again");
}

int verify(const LookOptions& options) {
  const auto directory = checkpoint::find_newest_saved(posix_file_system(), options.directory);
  if (!directory.ok()) return fail_tool("verify", directory.error());
  const double start_s = system_clock().monotonic_s();
  ProgressLine progress("verify");
  auto verified =
      checkpoint::verify(posix_file_system(), directory.value(), options.threads,
                         [&](int64_t done, int64_t total) { progress.show(done, total); });
  progress.end();
  if (!verified.ok() && verified.error().code == Code::kCorrupt)  // the manifest
    verified =
        std::vector{checkpoint::VerifyProblem{checkpoint::kManifestName, verified.error().message}};
  if (!verified.ok()) return fail_tool("verify", verified.error());
  const double seconds = system_clock().monotonic_s() - start_s;
  const auto& problems = verified.value();
  const std::string index = missing_index(posix_file_system(), directory.value());
  if (options.json) {
    ordered_json json{{"directory", directory.value().string()},
                      {"whole", problems.empty()},
                      {"seconds", seconds},
                      {"missing", index},
                      {"problems", ordered_json::array()}};
    for (const auto& p : problems)
      json["problems"].push_back({{"where", p.where}, {"what", p.what}});
    print_json(json);
  } else {
    for (const auto& p : problems) std::cout << "DAMAGED  " << p.what << "\n";
    if (!index.empty()) std::cout << "MISSING  " << index << "\n";
    std::cout << directory.value().string() << ": "
              << (problems.empty() ? "whole" : text(problems.size(), " problems")) << ", "
              << fixed(seconds, 2) << " s\n";
  }
  return problems.empty() ? 0 : 1;
}

std::shared_ptr<LookOptions> add_options(CLI::App* command) {
  auto options = std::make_shared<LookOptions>();
  command->add_option("DIR", options->directory, "Checkpoint, checkpoint folder or run folder")
      ->required();
  command->add_flag("--json", options->json, "Machine-readable output");
  return options;
}

}  // namespace

void add_look_tools(CLI::App& app, CheckpointTools& tools) {
  CLI::App* command = add_tool(
      app, "list", "Checkpoints of a folder, newest first, with the faults of each", kListExamples);
  auto options = add_options(command);
  tools.push_back({command, [options] { return list(*options); }});
  command = add_tool(app, "inspect", "Step, sizes, tensors, fingerprints, trainer state",
                     kInspectExamples);
  options = add_options(command);
  tools.push_back({command, [options] { return inspect(*options); }});
  command = add_tool(app, "verify", "Read every byte back and check every hash", kVerifyExamples);
  options = add_options(command);
  add_threads_option(command, options->threads);
  tools.push_back({command, [options] { return verify(*options); }});
}

}  // namespace lockstep::cli
