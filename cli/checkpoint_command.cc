#include "cli/checkpoint_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "base/clock.h"
#include "base/text.h"
#include "checkpoint/catalog.h"
#include "cli/checkpoint_path.h"

namespace lockstep::cli {

namespace {

using checkpoint::CatalogEntry;
using checkpoint::Manifest;
using nlohmann::ordered_json;
using Path = std::filesystem::path;

constexpr const char* kExamples = R"(Examples:
  lockstep checkpoint list results/training/demo
  lockstep checkpoint inspect results/training/demo            # the newest one
  lockstep checkpoint inspect results/training/demo/checkpoints/step_00000100.g1-7f2a91
  lockstep checkpoint verify results/training/demo --threads 4
  lockstep checkpoint list results/training/demo --json | jq '.[0].directory'

DIR is a checkpoint, a folder of checkpoints, or a run folder that has one. Any HDF5 program reads
index.h5 in a checkpoint (h5py needs hdf5plugin): h5py.File("index.h5")["param/NAME"][:])";

struct Options {
  std::string directory;
  bool json = false;
  int threads = 2;
};

int fail(const Error& error) {
  std::cerr << "lockstep checkpoint: " << error.message << "\n";
  // What is not there was named wrongly.
  return exit_status(error.code == Code::kNotFound ? Code::kConfig : error.code);
}

int list(const Options& options) {
  FileSystem& file_system = posix_file_system();
  const auto listed = checkpoint::list_checkpoints(
      file_system, checkpoint_folder_of(file_system, options.directory));
  if (!listed.ok()) return fail(listed.error());
  const auto& entries = listed.value();
  ordered_json json = ordered_json::array();
  for (const CatalogEntry& e : entries) {
    json.push_back({{"directory", e.directory.string()},
                    {"step", e.step},
                    {"generation", e.generation},
                    {"committed", e.committed},
                    {"size_bytes", e.size_bytes},
                    {"problem", e.problem}});
    if (options.json) continue;
    std::cout << std::setw(10) << e.step << "  " << std::setw(11)
              << (e.committed ? bytes_text(static_cast<uint64_t>(e.size_bytes)) : "-") << "  "
              << e.directory.filename().string() << (e.committed ? "" : "  NOT USABLE: ")
              << e.problem << "\n";
  }
  if (options.json)
    std::cout << json.dump(2) << "\n";
  else if (entries.empty())
    std::cout << "no checkpoints\n";
  const bool usable = std::any_of(entries.begin(), entries.end(),
                                  [](const CatalogEntry& e) { return e.committed; });
  return usable ? 0 : 1;
}

struct KindTotal {
  int64_t tensors = 0, elements = 0;
};

std::map<std::string, KindTotal> totals_of(const Manifest& manifest) {
  std::map<std::string, KindTotal> totals;
  for (const auto& tensor : manifest.tensors)
    for (const auto& [kind, ignored] : tensor.fingerprint) {
      ++totals[kind].tensors;
      totals[kind].elements += checkpoint::element_count(tensor.global_shape);
    }
  return totals;
}

void print_json(const Path& directory, const Manifest& m) {
  ordered_json json{{"directory", directory.string()},
                    {"format_version", m.format_version},
                    {"step", m.step},
                    {"generation", m.generation},
                    {"world_size", m.world_size},
                    {"created_utc", m.created_utc},
                    {"codec", m.codec},
                    {"trainer_state", ordered_json::parse(m.trainer_state)},
                    {"files", ordered_json::array()},
                    {"tensors", ordered_json::array()}};
  for (const auto& file : m.files)
    json["files"].push_back({{"name", file.name},
                             {"size_bytes", file.size_bytes},
                             {"pieces", file.pieces.size()},
                             {"chunks", file.chunk_rows}});
  for (const auto& tensor : m.tensors)
    json["tensors"].push_back({{"name", tensor.name},
                               {"global_shape", tensor.global_shape},
                               {"fingerprint", tensor.fingerprint}});
  std::cout << json.dump(2) << "\n";
}

void print_text(const Path& directory, const Manifest& m) {
  int64_t raw_bytes = 0, stored_bytes = 0;
  for (const auto& file : m.files) {
    stored_bytes += file.size_bytes;
    for (const auto& piece : file.pieces) raw_bytes += 4 * piece.length;
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
              << " tensors  " << grouped(total.elements) << " elements\n";
  for (const auto& tensor : m.tensors) {
    const auto param = tensor.fingerprint.find("param");
    std::cout << "  " << (param == tensor.fingerprint.end() ? "-" : param->second) << "  "
              << tensor.name << " " << checkpoint::shape_text(tensor.global_shape) << "\n";
  }
  std::cout << "trainer state " << m.trainer_state << "\n";
}

int inspect(const Options& options) {
  const auto directory = checkpoint_of(posix_file_system(), options.directory);
  if (!directory.ok()) return fail(directory.error());
  const auto manifest = checkpoint::read_manifest(posix_file_system(), directory.value());
  if (!manifest.ok()) return fail(manifest.error());
  if (options.json)
    print_json(directory.value(), manifest.value());
  else
    print_text(directory.value(), manifest.value());
  return 0;
}

int verify(const Options& options) {
  const auto directory = checkpoint_of(posix_file_system(), options.directory);
  if (!directory.ok()) return fail(directory.error());
  const double start_s = system_clock().monotonic_s();
  const auto verified = checkpoint::verify(posix_file_system(), directory.value(), options.threads);
  if (!verified.ok()) return fail(verified.error());
  const double seconds = system_clock().monotonic_s() - start_s;
  const auto& problems = verified.value();
  if (options.json) {
    ordered_json json{{"directory", directory.value().string()},
                      {"whole", problems.empty()},
                      {"seconds", seconds},
                      {"problems", ordered_json::array()}};
    for (const auto& p : problems)
      json["problems"].push_back({{"where", p.where}, {"what", p.what}});
    std::cout << json.dump(2) << "\n";
  } else {
    for (const auto& p : problems) std::cout << "DAMAGED  " << p.what << "\n";
    std::cout << directory.value().string() << ": "
              << (problems.empty() ? "whole" : text(problems.size(), " problems")) << ", "
              << fixed(seconds, 2) << " s\n";
  }
  return problems.empty() ? 0 : 1;
}

CLI::App* add_command(CLI::App& app, Options& options, const char* name, const char* what) {
  CLI::App* const command = app.add_subcommand(name, what);
  command->add_option("DIR", options.directory, "Checkpoint, checkpoint folder or run folder")
      ->required();
  command->add_flag("--json", options.json, "Machine-readable output");
  command->footer(kExamples);
  return command;
}

}  // namespace

int checkpoint_command(int argc, char** argv) {
  CLI::App app("Looks at checkpoints.", "lockstep checkpoint");
  Options options;
  const CLI::App* const listing =
      add_command(app, options, "list", "Checkpoints of a folder, newest first, and what is wrong");
  const CLI::App* const inspecting =
      add_command(app, options, "inspect", "Step, sizes, tensors, fingerprints, trainer state");
  CLI::App* const verifying =
      add_command(app, options, "verify", "Read every byte back and check every hash");
  verifying->add_option("--threads", options.threads, "Decoding threads")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app.require_subcommand(1);
  app.footer(kExamples);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : exit_status(Code::kConfig);
  }
  if (listing->parsed()) return list(options);
  if (inspecting->parsed()) return inspect(options);
  return verify(options);
}

}  // namespace lockstep::cli
