// Which checkpoints a folder holds, which of them are valid, and reading one at any world size.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "base/result.h"
#include "checkpoint/state.h"

namespace lockstep::checkpoint {

struct ManifestTensor {
  std::string name;
  std::vector<int64_t> global_shape;
  std::map<std::string, std::string> fingerprint;  // kind -> 16 hex digits of the whole tensor
};
struct ManifestFile {
  std::string name;              // rank_00000.h5
  int64_t size_bytes = 0;
  int64_t chunk_rows = 0;
  std::string outside_xxh3;      // XXH3 over all bytes outside chunks
};
struct Manifest {
  int64_t format_version = 1;
  int64_t step = 0, generation = 0, world_size = 0;
  std::string nonce, created_utc;
  std::vector<ManifestFile> files;
  std::vector<ManifestTensor> tensors;
  std::string trainer_state;     // JSON object text
};

struct CatalogEntry {
  std::filesystem::path directory;
  int64_t step = -1, generation = -1;   // from the directory's name
  bool committed = false;               // has a manifest that parses and whose files exist at their sizes
  std::string problem;                  // why not
  int64_t size_bytes = 0;
};

// Newest first (step, then generation). Never fails on a damaged entry: it carries its problem.
Result<std::vector<CatalogEntry>> list_checkpoints(FileSystem& file_system, const std::filesystem::path& folder);
// Errors: kNotFound, kCorrupt (bad JSON, bad self-checksum), naming the file.
Result<Manifest> read_manifest(FileSystem& file_system, const std::filesystem::path& directory);

struct LoadStatistics {
  int64_t wanted_bytes = 0, read_bytes = 0;
  double seconds = 0;
};
// Fills `targets` from the checkpoint, whatever world size wrote it, by interval intersection; reads only the
// chunks that overlap, on `threads` threads, checks CRC32C and XXH3 of each.
// Errors: kNotFound / kCorrupt "file:/dataset chunk k @offset"; kConfig when names or shapes do not match the
// checkpoint, with both sides.
Result<LoadStatistics> load_pieces(FileSystem& file_system, const std::filesystem::path& directory,
                                   const Manifest& manifest, std::vector<LiveTarget> targets, int threads);

struct VerifyProblem {
  std::string where, what;
};
// Re-reads every byte: file sizes, outside-chunk hash, every chunk's CRC32C, XXH3, fletcher32, fingerprints.
Result<std::vector<VerifyProblem>> verify(FileSystem& file_system, const std::filesystem::path& directory,
                                          int threads);

}  // namespace lockstep::checkpoint
