#include "checkpoint/record/manifest_parts.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <tuple>

#include "base/check.h"
#include "base/hash.h"
#include "base/text.h"

namespace lockstep::checkpoint {
namespace {

constexpr size_t kRankDigits = 5;

bool comes_before(const TensorPiece& a, const TensorPiece& b) {
  return std::tie(a.kind, a.name, a.flat_start) < std::tie(b.kind, b.name, b.flat_start);
}

// Sorted, and neighbours joined. What overlaps stays apart, for check_coverage to find.
std::vector<TensorPiece> joined_pieces(std::span<const ManifestFile> files) {
  std::vector<TensorPiece> all, joined;
  for (const ManifestFile& file : files)
    all.insert(all.end(), file.pieces.begin(), file.pieces.end());
  std::sort(all.begin(), all.end(), comes_before);
  for (TensorPiece& piece : all) {
    TensorPiece* const last = joined.empty() ? nullptr : &joined.back();
    const bool follows = last != nullptr && last->kind == piece.kind && last->name == piece.name &&
                         last->flat_start + last->length == piece.flat_start;
    if (follows)
      last->length += piece.length;
    else
      joined.push_back(std::move(piece));
  }
  return joined;
}

int64_t elements_of(std::span<const TensorPiece> pieces) {
  int64_t elements = 0;
  for (const TensorPiece& piece : pieces) elements += piece.length;
  return elements;
}
int64_t elements_of(std::span<const ManifestFile> files) {
  int64_t elements = 0;
  for (const ManifestFile& file : files) elements += elements_of(file.pieces);
  return elements;
}

Result<std::vector<ManifestFile>> read_part(FileSystem& file_system,
                                            const std::filesystem::path& directory,
                                            const Manifest& whole, const ManifestPart& part) {
  const std::filesystem::path path = directory / part.name;
  const auto read = read_file(file_system, path);
  if (!read.ok() && read.error().code == Code::kNotFound)
    return Error{Code::kCorrupt,
                 text(path.string(), " is missing, but ", kManifestName, " names it")};
  LOCKSTEP_TRY(const std::string contents, read);
  if (static_cast<int64_t>(contents.size()) != part.size_bytes ||
      hex64(xxh3_64(contents)) != part.xxh3)
    return Error{Code::kCorrupt,
                 text(path.string(), " differs from the size or hash in ", kManifestName)};
  auto files = parse_part(contents, whole);
  if (!files.ok()) return files.error().in(path.string());
  int64_t stored_bytes = 0;
  for (const ManifestFile& file : files.value()) stored_bytes += file.size_bytes;
  // The coverage that was checked is that of the entry.
  if (static_cast<int64_t>(files.value().size()) != part.file_count ||
      stored_bytes != part.stored_bytes || joined_pieces(files.value()) != part.pieces)
    return Error{Code::kCorrupt,
                 text(path.string(), " describes other files than ", kManifestName, " says")};
  return files;
}

Result<void> read_chosen(FileSystem& file_system, const std::filesystem::path& directory,
                         Manifest& manifest,
                         const std::function<bool(const ManifestPart&)>& chosen) {
  for (const ManifestPart& part : manifest.parts) {
    if (!chosen(part)) continue;
    LOCKSTEP_TRY(auto files, read_part(file_system, directory, manifest, part));
    std::move(files.begin(), files.end(), std::back_inserter(manifest.files));
  }
  return {};
}

}  // namespace

int64_t ranks_in_a_part(int64_t world_size) {
  constexpr int64_t kRanksOfANode = 8;
  int64_t ranks = kRanksOfANode;
  while (ranks * ranks < world_size) ranks += kRanksOfANode;
  return ranks;
}

Result<ManifestPart> publish_part(FileSystem& file_system, const std::filesystem::path& directory,
                                  int64_t first_rank, std::span<const ManifestFile> files) {
  LOCKSTEP_CHECK(first_rank >= 0 && !files.empty(), "a part of ", files.size(), " files from rank ",
                 first_rank);
  ManifestPart part;
  const std::string contents = part_text(files);
  part.name = text("manifest_", zero_padded(first_rank, kRankDigits), ".json");
  part.size_bytes = static_cast<int64_t>(contents.size());
  part.xxh3 = hex64(xxh3_64(contents));
  part.file_count = static_cast<int64_t>(files.size());
  for (const ManifestFile& file : files) part.stored_bytes += file.size_bytes;
  part.pieces = joined_pieces(files);
  LOCKSTEP_CHECK(elements_of(part.pieces) == elements_of(files), part.name, " has ",
                 elements_of(part.pieces), " elements, and its files ", elements_of(files));
  LOCKSTEP_RETURN_IF_ERROR(publish_file(file_system, directory / part.name, contents));
  return part;
}

Result<void> read_parts(FileSystem& file_system, const std::filesystem::path& directory,
                        Manifest& manifest) {
  return read_chosen(file_system, directory, manifest, [](const ManifestPart&) { return true; });
}

Result<void> read_parts_for(FileSystem& file_system, const std::filesystem::path& directory,
                            Manifest& manifest, const std::vector<LiveTarget>& targets) {
  std::map<std::string, std::vector<const TensorPiece*>> wanted;  // by tensor_key()
  for (const LiveTarget& target : targets)
    wanted[target.piece.tensor_key()].push_back(&target.piece);
  const auto is_wanted = [&](const TensorPiece& held) {
    const auto at = wanted.find(held.tensor_key());
    return at != wanted.end() &&
           std::any_of(at->second.begin(), at->second.end(), [&](const TensorPiece* target) {
             return held.flat_start < target->flat_start + target->length &&
                    target->flat_start < held.flat_start + held.length;
           });
  };
  return read_chosen(file_system, directory, manifest, [&](const ManifestPart& part) {
    return std::any_of(part.pieces.begin(), part.pieces.end(), is_wanted);
  });
}

Result<void> read_parts_of(FileSystem& file_system, const std::filesystem::path& directory,
                           Manifest& manifest, const FileShare& share) {
  LOCKSTEP_CHECK(share.rank >= 0 && share.rank < share.world_size, "share ", share.rank, " of ",
                 share.world_size);
  std::vector<ManifestFile> mine;
  int64_t place = 0;
  const auto keep = [&](std::vector<ManifestFile> files) {
    for (ManifestFile& file : files)
      if (share.has(place++)) mine.push_back(std::move(file));
  };
  keep(std::move(manifest.files));
  for (const ManifestPart& part : manifest.parts) {
    const int64_t past = (share.rank - place) % share.world_size;
    const int64_t first = place + (past < 0 ? past + share.world_size : past);
    if (first >= place + part.file_count) {
      place += part.file_count;
      continue;
    }
    LOCKSTEP_TRY(auto files, read_part(file_system, directory, manifest, part));
    keep(std::move(files));
  }
  LOCKSTEP_CHECK(std::ssize(mine) <= (place + share.world_size - 1) / share.world_size, mine.size(),
                 " of ", place, " files are rank ", share.rank, "'s of ", share.world_size);
  manifest.files = std::move(mine);
  return {};
}

}  // namespace lockstep::checkpoint
