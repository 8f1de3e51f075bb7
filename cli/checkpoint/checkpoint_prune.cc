// lockstep checkpoint prune.
#include <algorithm>
#include <iomanip>
#include <iostream>
#include <memory>
#include <set>

#include "base/clock.h"
#include "base/text.h"
#include "checkpoint/save/retention.h"
#include "cli/checkpoint/checkpoint_tool.h"
#include "launcher/control/timing.h"
#include "launcher/control/wire.h"
#include "launcher/host/other_runs.h"
#include "launcher/host/run_files.h"

namespace lockstep::cli {
namespace {

using checkpoint::CatalogEntry;
using nlohmann::ordered_json;
using Path = std::filesystem::path;

constexpr const char* kPruneExamples = R"(Examples:
  lockstep checkpoint prune results/training/demo --keep-latest 2 --dry-run
  lockstep checkpoint prune results/training/demo --keep-latest 2 --keep-every 1000 --keep-best
  lockstep checkpoint prune results/training/demo --keep-latest 3 --orphans   # no run is alive

Keeps the K checkpoints committed last, with --keep-every those whose step is a multiple of N, and
with --keep-best the one with the lowest validation loss.
A directory without a manifest may be a save that is still being written, so it is kept unless
--orphans is given. --orphans is refused while a run is active in this folder.)";

struct PruneOptions {
  std::string folder;
  int64_t keep_latest = 0, keep_every = 0;
  bool keep_best = false, dry_run = false, orphans = false, json = false;
};

// What goes, of a catalog.
std::set<Path> doomed(const std::vector<CatalogEntry>& entries, const PruneOptions& options) {
  int64_t newest_generation = 0;
  for (const CatalogEntry& e : entries)
    newest_generation = std::max(newest_generation, e.generation);
  const auto listed = checkpoint::superfluous(entries,
                                              {.keep_latest_k = options.keep_latest,
                                               .keep_every = options.keep_every,
                                               .keep_best = options.keep_best},
                                              newest_generation);
  std::set<Path> paths(listed.begin(), listed.end());
  for (const CatalogEntry& e : entries) {
    if (!e.has_manifest) paths.erase(e.directory);
    if (!e.has_manifest && !e.lost_manifest && options.orphans) paths.insert(e.directory);
  }
  return paths;
}

void print_line(const CatalogEntry& entry, const char* what) {
  const std::string size =
      entry.committed ? bytes_text(static_cast<uint64_t>(entry.size_bytes)) : "-";
  std::cout << std::left << std::setw(13) << what << std::right << std::setw(11) << size << "  "
            << entry.directory.filename().string()
            << (entry.committed ? "" : text("  ", entry.problem)) << "\n";
}

// The run whose checkpoints are in `given`, or in given/checkpoints.
Path run_of(FileSystem& file_system, const Path& given) {
  Path whole = std::filesystem::absolute(given).lexically_normal();
  if (!whole.has_filename()) whole = whole.parent_path();  // it ended in a slash
  return file_system.exists(whole / "checkpoints") ? whole : whole.parent_path();
}

// Where a run is alive, what is not finished may be what it saves now. A job that can have several
// nodes is watched for as long as its coordinator takes to publish once more.
Result<void> check_no_run(FileSystem& file_system, const Path& run) {
  const auto membership = launcher::read_membership(file_system, run / "workers.json");
  if (!membership.ok() && membership.error().code == Code::kNotFound) return {};
  if (!membership.ok()) return membership.error();
  const bool elastic = !membership.value().nodes.empty();
  if (launcher::nobody_else_runs(file_system, system_clock(), run, elastic ? "prune" : "",
                                 launcher::control::Wire::kBeatMs * launcher::control::kMs)
          .ok())
    return {};
  return Error{Code::kConfig, text("a run is active in ", run.string(),
                                   ", and an unfinished save may be the one it is writing; stop "
                                   "the run first, or prune without --orphans")};
}

int prune(const PruneOptions& options) {
  FileSystem& file_system = posix_file_system();
  const Path folder = checkpoint::checkpoint_folder_of(file_system, options.folder);
  if (options.orphans && !options.dry_run)
    if (const auto alone = check_no_run(file_system, run_of(file_system, options.folder));
        !alone.ok())
      return fail_tool("prune", alone.error());
  const auto entries = checkpoint::list_checkpoints(file_system, folder);
  if (!entries.ok()) return fail_tool("prune", entries.error());
  if (entries.value().empty())
    return fail_tool("prune", {Code::kNotFound, options.folder + " holds no checkpoint"});
  const std::set<Path> paths = doomed(entries.value(), options);
  ordered_json json{{"dry_run", options.dry_run},
                    {"removed", ordered_json::array()},
                    {"kept", ordered_json::array()}};
  for (const CatalogEntry& entry : entries.value()) {
    const bool goes = paths.contains(entry.directory);
    if (goes && !options.dry_run) {
      const auto removed = checkpoint::remove_checkpoint(file_system, entry.directory);
      if (!removed.ok()) return fail_tool("prune", removed.error());
    }
    json[goes ? "removed" : "kept"].push_back(entry.directory.string());
    if (!options.json)
      print_line(entry, !goes ? "kept" : options.dry_run ? "would remove" : "removed");
  }
  if (options.json) print_json(json);
  return 0;
}

}  // namespace

void add_prune_tool(CLI::App& app, CheckpointTools& tools) {
  CLI::App* const command =
      add_tool(app, "prune", "Remove checkpoints that are not needed", kPruneExamples);
  auto options = std::make_shared<PruneOptions>();
  command->add_option("FOLDER", options->folder, "Checkpoint folder or run folder")->required();
  command->add_option("--keep-latest", options->keep_latest, "Checkpoints to keep, at least 1")
      ->required()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  command
      ->add_option("--keep-every", options->keep_every,
                   "Keep steps that are multiples of this; 0: none")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40))
      ->capture_default_str();
  command->add_flag("--keep-best", options->keep_best,
                    "Keep the one with the lowest validation loss");
  command->add_flag("--dry-run", options->dry_run, "Only print what would be removed");
  command->add_flag("--orphans", options->orphans,
                    "Also remove unfinished saves; no run may be active in the folder");
  command->add_flag("--json", options->json, "Machine-readable output");
  tools.push_back({command, [options] { return prune(*options); }});
}

}  // namespace lockstep::cli
