#include "cli/shared/run_listing.h"

#include <algorithm>

#include "base/text.h"
#include "cli/shared/folder_name.h"
#include "launcher/host/run_files.h"

namespace lockstep::cli {
namespace {

using Path = std::filesystem::path;

enum class Kind { kNoRun, kRun, kLinked };

// A file that is there must be one: not a link, not a pipe that nobody writes to.
Kind kind_of(FileSystem& file_system, const Path& folder) {
  for (const char* name : kRunFiles) {
    const Path path = folder / name;
    if (file_system.is_link(path)) return Kind::kLinked;
    if (file_system.exists(path) && !launcher::is_regular_file(path)) return Kind::kNoRun;
  }
  const bool run =
      file_system.exists(folder / "run_args.json") || file_system.exists(folder / "metrics.jsonl");
  return run ? Kind::kRun : Kind::kNoRun;
}

class Search {
 public:
  Search(FileSystem& file_system, const ListingLimits& limits, RunListing& listing)
      : file_system_(file_system), limits_(limits), listing_(listing) {}

  // Whether `folder` is a run, or was passed over.
  bool add_run(const Path& folder, const std::string& id) {
    const Kind kind = kind_of(file_system_, folder);
    if (kind == Kind::kLinked) ++listing_.links;
    if (kind == Kind::kRun) {
      if (listing_.runs.size() < limits_.runs)
        listing_.runs.push_back({id, folder});
      else
        listing_.cut = true;
    }
    return kind != Kind::kNoRun;
  }

  void look_into(const Path& folder, const std::string& before, int depth) {
    const auto names = file_system_.list(folder);
    if (!names) return;
    for (const std::string& name : names.value()) {
      if (listing_.cut) return;
      if (++entries_ > limits_.entries) {
        listing_.cut = true;
        return;
      }
      const Path path = folder / name;
      if (name.starts_with(".")) continue;
      if (file_system_.is_link(path)) {
        ++listing_.links;
        continue;
      }
      if (!file_system_.exists(path / ".")) continue;  // no folder
      if (!add_run(path, before + name) && depth > 1)
        look_into(path, text(before, name, "/"), depth - 1);
    }
  }

 private:
  FileSystem& file_system_;
  const ListingLimits& limits_;
  RunListing& listing_;
  int64_t entries_ = 0;
};

}  // namespace

const FoundRun* RunListing::find(const std::string& id) const {
  const auto found =
      std::find_if(runs.begin(), runs.end(), [&](const FoundRun& run) { return run.id == id; });
  return found == runs.end() ? nullptr : &*found;
}

Result<RunListing> list_runs(FileSystem& file_system, const Path& root,
                             const ListingLimits& limits) {
  if (const auto listed = file_system.list(root); !listed)
    return Error{
        listed.error().code,
        text(listed.error().message, "; RESULTS must be the folder of a run (",
             "results/training/NAME), or a folder with the folders of runs below it (results)")};
  RunListing listing;
  Search search(file_system, limits, listing);
  if (!search.add_run(root, folder_name(root))) search.look_into(root, "", limits.depth);
  std::sort(listing.runs.begin(), listing.runs.end(),
            [](const FoundRun& a, const FoundRun& b) { return a.id < b.id; });
  return listing;
}

}  // namespace lockstep::cli
