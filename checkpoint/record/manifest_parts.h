// A manifest in parts: of a checkpoint by many ranks. What describes the files of a group of ranks
// is a file of its own, so that nobody has to write, hear or read what describes all of them.
//
//   manifest_00000.json   of ranks 0 to 47
//   manifest_00048.json   of ranks 48 to 95 …
//   manifest.json         names the parts with their digests and what their ranks' files hold;
//                         published when all parts are durable: the commit
//
// A part alone means nothing: without a manifest.json that names it it is the rest of an attempt.
#pragma once

#include <filesystem>
#include <span>
#include <vector>

#include "base/file_system.h"
#include "base/result.h"
#include "checkpoint/record/manifest.h"

namespace lockstep::checkpoint {

// What one of many looks at who look at all files together: those whose place among all is `rank`
// modulo `world_size`. Of a save by as many ranks a rank's own, where each has written one.
struct FileShare {
  int rank = 0, world_size = 1;
  bool has(int64_t place) const { return place % world_size == rank; }
};

// A manifest of more ranks is in parts.
inline constexpr int64_t kMostRanksInOneManifest = 256;

// Ranks that share a part: a multiple of 8, which is whole nodes of 8, and about the square root of
// all, so that neither a part nor what names all of them grows faster than that.
int64_t ranks_in_a_part(int64_t world_size);

// Publishes the part of a group, of which `first_rank` is the first, and returns its entry.
// Errors: kIo, kNoSpace.
Result<ManifestPart> publish_part(FileSystem& file_system, const std::filesystem::path& directory,
                                  int64_t first_rank, std::span<const ManifestFile> files);
// Adds the files that the parts of `manifest` describe: all of them, or those of the parts that
// hold an element of `targets`. Nothing where it is in one. Errors: kNotFound; kCorrupt where a
// part is not what `manifest` names; each naming it.
Result<void> read_parts(FileSystem& file_system, const std::filesystem::path& directory,
                        Manifest& manifest);
Result<void> read_parts_for(FileSystem& file_system, const std::filesystem::path& directory,
                            Manifest& manifest, const std::vector<LiveTarget>& targets);
// The same, of the parts that describe a file of `share`; no other file stays in `manifest`, which
// is in one, or in parts of which none was read.
Result<void> read_parts_of(FileSystem& file_system, const std::filesystem::path& directory,
                           Manifest& manifest, const FileShare& share);

}  // namespace lockstep::checkpoint
