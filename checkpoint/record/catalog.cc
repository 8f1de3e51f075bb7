#include "checkpoint/record/catalog.h"

#include <algorithm>
#include <tuple>

#include "base/clock.h"
#include "base/hash.h"
#include "base/text.h"
#include "checkpoint/record/attempt.h"

namespace lockstep::checkpoint {
namespace {

// Errors: kNotFound; kCorrupt: a file has another size; kIo.
Result<void> check_sizes(FileSystem& file_system, const std::filesystem::path& directory,
                         const Manifest& manifest) {
  for (const ManifestFile& entry : manifest.files) {
    const auto file = file_system.open(directory / entry.name);
    if (!file.ok()) return file.error().in(entry.name);
    const auto size_bytes = file.value()->size_bytes();
    if (!size_bytes.ok()) return size_bytes.error().in(entry.name);
    if (size_bytes.value() != entry.size_bytes)
      return Error{Code::kCorrupt, text(entry.name, ": ", size_bytes.value(), " bytes long, ",
                                        entry.size_bytes, " were written")};
  }
  return {};
}

Result<void> check_entry(FileSystem& file_system, const std::filesystem::path& directory,
                         const Attempt& attempt, const Manifest& manifest) {
  if (manifest.step != attempt.step || manifest.generation != attempt.generation)
    return Error{Code::kCorrupt, text("the manifest is of step ", manifest.step, ", generation ",
                                      manifest.generation)};
  return check_sizes(file_system, directory, manifest);
}

CatalogEntry entry_of(FileSystem& file_system, const std::filesystem::path& directory,
                      const Attempt& attempt) {
  CatalogEntry entry;
  entry.directory = directory;
  entry.step = attempt.step;
  entry.generation = attempt.generation;
  const auto manifest = read_manifest(file_system, directory);
  entry.has_manifest = manifest.ok() || manifest.error().code != Code::kNotFound;
  if (!manifest.ok()) {
    entry.unread = manifest.error().code == Code::kIo;
    entry.problem = entry.has_manifest ? manifest.error().message
                                       : "no manifest.json: the save was not finished";
    return entry;
  }
  const Manifest& m = manifest.value();
  entry.ephemeral = m.ephemeral;
  entry.created_s = utc_seconds(m.created_utc);
  for (const ManifestFile& file : m.files) entry.size_bytes += file.size_bytes;
  const auto whole = check_entry(file_system, directory, attempt, m);
  entry.committed = whole.ok();
  if (whole.ok()) return entry;
  entry.problem = whole.error().message;
  entry.unread = whole.error().code == Code::kIo;
  return entry;
}

// `given` itself, or the newest entry in it that has `wanted`.
Result<std::filesystem::path> find(FileSystem& file_system, const std::filesystem::path& given,
                                   bool CatalogEntry::*wanted) {
  const std::filesystem::path trimmed = given.has_filename() ? given : given.parent_path();
  if (parse_attempt(trimmed.filename().string()) || file_system.exists(trimmed / kManifestName))
    return trimmed;
  const std::filesystem::path folder = checkpoint_folder_of(file_system, trimmed);
  LOCKSTEP_TRY(const auto entries, list_checkpoints(file_system, folder));
  std::string problems;
  for (const CatalogEntry& entry : entries) {
    if (entry.*wanted) return entry.directory;
    problems += text("\n  ", entry.directory.filename().string(), ": ", entry.problem);
  }
  return Error{Code::kNotFound,
               entries.empty()
                   ? text(folder.string(), " holds no checkpoint: nothing in it is named step_…")
                   : text(folder.string(), " holds no usable checkpoint:", problems)};
}

}  // namespace

Result<std::vector<CatalogEntry>> list_checkpoints(FileSystem& file_system,
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
  for (const auto& [attempt, name] : found)
    entries.push_back(entry_of(file_system, folder / name, attempt));
  return entries;
}

std::filesystem::path checkpoint_folder_of(FileSystem& file_system,
                                           const std::filesystem::path& given) {
  return file_system.exists(given / "checkpoints") ? given / "checkpoints" : given;
}

Result<std::filesystem::path> find_checkpoint(FileSystem& file_system,
                                              const std::filesystem::path& given) {
  return find(file_system, given, &CatalogEntry::committed);
}

Result<std::filesystem::path> find_newest_saved(FileSystem& file_system,
                                                const std::filesystem::path& given) {
  return find(file_system, given, &CatalogEntry::has_manifest);
}

Result<Manifest> read_manifest(FileSystem& file_system, const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / kManifestName;
  LOCKSTEP_TRY(const std::string contents, read_file(file_system, path));
  auto manifest = parse_manifest(contents);
  if (!manifest.ok()) return manifest.error().in(path.string());
  if (manifest.value().chunking.elements < 1)  // as one of memory has
    return Error{Code::kCorrupt, text(path.string(), ": chunks of no elements")};
  return manifest;
}

}  // namespace lockstep::checkpoint
