#include "checkpoint/record/catalog.h"

#include <algorithm>
#include <tuple>

#include "base/check.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/parallel_for.h"
#include "base/text.h"
#include "checkpoint/record/attempt.h"
#include "checkpoint/record/manifest_parts.h"
#include "checkpoint/record/suspects.h"

namespace lockstep::checkpoint {
namespace {

// Newest first, by their names alone.
Result<std::vector<CatalogEntry>> names_in(FileSystem& file_system,
                                           const std::filesystem::path& folder) {
  LOCKSTEP_TRY(const std::vector<std::string> names, file_system.list(folder));
  std::vector<std::pair<Attempt, std::string>> found;
  for (const std::string& name : names)
    if (const auto attempt = parse_attempt(name)) found.emplace_back(*attempt, name);
  std::sort(found.begin(), found.end(), [](const auto& x, const auto& y) {
    const Attempt &a = x.first, &b = y.first;
    return std::tie(a.step, a.generation, a.number, x.second) >
           std::tie(b.step, b.generation, b.number, y.second);
  });
  std::vector<CatalogEntry> entries;
  for (const auto& [attempt, name] : found) {
    CatalogEntry& entry = entries.emplace_back();
    entry.directory = folder / name;
    entry.step = attempt.step;
    entry.generation = attempt.generation;
  }
  if (std::find(names.begin(), names.end(), kSuspectsName) == names.end()) return entries;
  LOCKSTEP_TRY(const auto suspects, read_suspects(file_system, folder));
  for (CatalogEntry& entry : entries)
    entry.suspect = is_suspect(suspects, entry.step, entry.generation);
  return entries;
}

void fill_in(CatalogEntry& entry, const Manifest& m) {
  entry.has_manifest = true;
  entry.ephemeral = m.ephemeral;
  entry.validation_loss = m.validation_loss;
  entry.created_s = utc_seconds(m.created_utc);
  entry.size_bytes = 0;
  for (const ManifestPart& part : m.parts) entry.size_bytes += part.stored_bytes;
  if (m.parts.empty())
    for (const ManifestFile& file : m.files) entry.size_bytes += file.size_bytes;
  entry.committed = m.step == entry.step && m.generation == entry.generation;
  if (!entry.committed)
    entry.problem =
        text("the name of this checkpoint does not match its manifest, which is of step ", m.step,
             ", generation ", m.generation);
}

// manifest.json alone.
Result<Manifest> read_head(FileSystem& file_system, const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / kManifestName;
  LOCKSTEP_TRY(const std::string contents, read_file(file_system, path));
  auto manifest = parse_manifest(contents);
  if (!manifest.ok()) return manifest.error().in(path.string());
  if (manifest.value().chunking.elements < 1)  // as one of memory has
    return Error{Code::kCorrupt, text(path.string(), ": its chunks have no elements")};
  return manifest;
}

void read_entry(FileSystem& file_system, CatalogEntry& entry) {
  const auto manifest = read_head(file_system, entry.directory);
  if (manifest.ok()) return fill_in(entry, manifest.value());
  entry.has_manifest = manifest.error().code != Code::kNotFound;
  entry.unread = manifest.error().code == Code::kIo;
  entry.lost_manifest = !entry.has_manifest && file_system.exists(entry.directory / kIndexName);
  entry.problem = entry.has_manifest ? manifest.error().message
                  : entry.lost_manifest
                      ? "its manifest.json is missing, although the save was finished (index.h5 is "
                        "there); copy manifest.json from where this folder came from"
                      : "no manifest.json: the save was not finished";
}

// `given` itself, or the newest entry in it that `wanted` accepts.
Result<std::filesystem::path> find(FileSystem& file_system, const std::filesystem::path& given,
                                   bool (*wanted)(const CatalogEntry&)) {
  const std::filesystem::path trimmed = given.has_filename() ? given : given.parent_path();
  if (parse_attempt(trimmed.filename().string()) || file_system.exists(trimmed / kManifestName))
    return trimmed;
  const std::filesystem::path folder = checkpoint_folder_of(file_system, trimmed);
  LOCKSTEP_TRY(auto entries, names_in(file_system, folder));
  std::string problems;
  for (CatalogEntry& entry : entries) {
    read_entry(file_system, entry);
    if (wanted(entry)) return entry.directory;
    problems +=
        text("\n  ", entry.directory.filename().string(), ": ",
             entry.problem.empty() ? "suspect: an audit found wrong bits after an earlier step"
                                   : entry.problem);
  }
  return Error{Code::kNotFound,
               entries.empty()
                   ? text(folder.string(), " holds no checkpoint: nothing in it is named step_…")
                   : text(folder.string(), " holds no usable checkpoint:", problems)};
}

}  // namespace

Result<std::vector<CatalogEntry>> list_checkpoints(FileSystem& file_system,
                                                   const std::filesystem::path& folder) {
  LOCKSTEP_TRY(auto entries, names_in(file_system, folder));
  parallel_for(entries.size(), kManifestReaders,
               [&] { return [&](size_t i) { read_entry(file_system, entries[i]); }; });
  return entries;
}

// Whether there is no manifest is for a read to say: a look that the system refused says it too.
Result<std::vector<CatalogEntry>> list_from_newest(FileSystem& file_system,
                                                   const std::filesystem::path& folder) {
  LOCKSTEP_TRY(auto entries, names_in(file_system, folder));
  bool found = false;
  for (CatalogEntry& entry : entries) {
    if (found && file_system.exists(entry.directory / kManifestName))
      entry.has_manifest = entry.committed = true;
    else
      read_entry(file_system, entry);
    found = found || entry.usable();
  }
  return entries;
}

Result<std::vector<CatalogEntry>> Catalog::look() {
  LOCKSTEP_TRY(auto entries, names_in(file_system_, folder_));
  std::map<std::filesystem::path, CatalogEntry> still_there;
  for (CatalogEntry& entry : entries) {
    const bool suspect = entry.suspect;  // it may become so after it was read
    if (const auto known = valid_.find(entry.directory); known != valid_.end())
      entry = known->second;
    else
      read_entry(file_system_, entry);
    entry.suspect = suspect;
    if (entry.committed) still_there.emplace(entry.directory, entry);
  }
  LOCKSTEP_CHECK(still_there.size() <= entries.size() &&
                     std::is_sorted(entries.begin(), entries.end(),
                                    [](const auto& a, const auto& b) { return a.step > b.step; }),
                 entries.size(), " entries, ", still_there.size(), " of them valid, or not sorted");
  valid_ = std::move(still_there);
  return entries;
}

void Catalog::add(const std::filesystem::path& directory, const Manifest& manifest) {
  const auto attempt = parse_attempt(directory.filename().string());
  LOCKSTEP_CHECK(directory == folder_ / directory.filename() && attempt &&
                     attempt->step == manifest.step && attempt->generation == manifest.generation,
                 directory.string(), " is not the place of step ", manifest.step, " of generation ",
                 manifest.generation, " in ", folder_.string());
  CatalogEntry entry;
  entry.directory = directory;
  entry.step = manifest.step;
  entry.generation = manifest.generation;
  fill_in(entry, manifest);
  LOCKSTEP_CHECK(entry.committed, directory.string(), ": ", entry.problem);
  valid_.insert_or_assign(directory, std::move(entry));
}

std::filesystem::path checkpoint_folder_of(FileSystem& file_system,
                                           const std::filesystem::path& given) {
  return file_system.exists(given / "checkpoints") ? given / "checkpoints" : given;
}

Result<std::filesystem::path> find_checkpoint(FileSystem& file_system,
                                              const std::filesystem::path& given) {
  return find(file_system, given, [](const CatalogEntry& entry) { return entry.usable(); });
}

Result<std::filesystem::path> find_newest_saved(FileSystem& file_system,
                                                const std::filesystem::path& given) {
  return find(file_system, given, [](const CatalogEntry& entry) { return entry.has_manifest; });
}

Result<Manifest> read_manifest(FileSystem& file_system, const std::filesystem::path& directory) {
  LOCKSTEP_TRY(Manifest manifest, read_head(file_system, directory));
  LOCKSTEP_RETURN_IF_ERROR(read_parts(file_system, directory, manifest));
  return manifest;
}

Result<Manifest> read_manifest_for(FileSystem& file_system, const std::filesystem::path& directory,
                                   const std::vector<LiveTarget>& targets) {
  LOCKSTEP_TRY(Manifest manifest, read_head(file_system, directory));
  LOCKSTEP_RETURN_IF_ERROR(read_parts_for(file_system, directory, manifest, targets));
  return manifest;
}

}  // namespace lockstep::checkpoint
