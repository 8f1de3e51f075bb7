// Which checkpoints a folder holds, which of them are valid, and reading one at any world size.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "base/result.h"
#include "checkpoint/manifest.h"
#include "checkpoint/state.h"

namespace lockstep::checkpoint {

// Told now and then by what takes long; done_bytes ends at total_bytes.
using Progress = std::function<void(int64_t done_bytes, int64_t total_bytes)>;

struct CatalogEntry {
  std::filesystem::path directory;
  int64_t step = -1, generation = -1;  // from the directory's name
  bool committed = false;              // its manifest is valid and its files have their sizes
  bool has_manifest = false;           // valid or not; without one it is the rest of an attempt
  std::string problem;                 // why it is not committed
  int64_t size_bytes = 0;              // of the files in the manifest
  bool ephemeral = false;              // its manifest says so
  std::optional<int64_t> created_s = {};  // unix time; from its manifest
};

// Newest first (step, generation, attempt). A damaged entry is listed with its problem, never an
// error. Names that are not a checkpoint's are passed over. Errors: kNotFound, kIo of the folder.
Result<std::vector<CatalogEntry>> list_checkpoints(FileSystem& file_system,
                                                   const std::filesystem::path& folder);
// The checkpoint that a person means: `given` itself, or the newest committed one in it, a folder
// of checkpoints or one that has such a folder named checkpoints. Errors: kNotFound with what is
// wrong with each, kIo.
Result<std::filesystem::path> find_checkpoint(FileSystem& file_system,
                                              const std::filesystem::path& given);
// The same, but of several the newest with a manifest, damaged or not: what to look at for damage.
Result<std::filesystem::path> find_newest_saved(FileSystem& file_system,
                                                const std::filesystem::path& given);
// given/checkpoints where it exists, else `given`.
std::filesystem::path checkpoint_folder_of(FileSystem& file_system,
                                           const std::filesystem::path& given);
// Errors: kNotFound; kCorrupt (bad JSON, bad self-checksum); kConfig (another format version); each
// naming the file.
Result<Manifest> read_manifest(FileSystem& file_system, const std::filesystem::path& directory);

// Threads that keep a disk busy while others decode, when nothing else runs here: 2 to 16.
int reader_threads();

struct LoadStatistics {
  int64_t wanted_bytes = 0, read_bytes = 0;
  double seconds = 0;
  Fingerprints sums;  // of what the targets now hold
};
// Fills `targets` from the checkpoint, whatever world size wrote it, by interval intersection;
// reads only the chunks that overlap, on `threads` threads, past HDF5's lock. Checks each file's
// size, table and metadata, CRC32C and XXH3 of each chunk, and the fingerprint of each tensor that
// the targets cover whole. After an error the targets hold anything.
// Errors: kNotFound / kCorrupt "file:/dataset chunk k @offset: what"; kConfig when names or shapes
// do not match the checkpoint, with both sides.
Result<LoadStatistics> load_pieces(FileSystem& file_system, const std::filesystem::path& directory,
                                   const Manifest& manifest, std::vector<LiveTarget> targets,
                                   int threads);

// What whole tensors must sum to; ranks that each loaded a part add their sums and ask this.
// Tensors that `whole` does not name are not looked at. Errors: kCorrupt naming tensors.
Result<void> check_fingerprints(const Manifest& manifest, const Fingerprints& whole);

struct VerifyProblem {
  std::string where, what;
};
// Re-reads every byte: file sizes, tables, hashes outside the chunks, every chunk's CRC32C,
// fletcher32 and XXH3, the fingerprints. Goes on after a problem. Errors: those of read_manifest.
Result<std::vector<VerifyProblem>> verify(FileSystem& file_system,
                                          const std::filesystem::path& directory, int threads,
                                          const Progress& progress = {});

}  // namespace lockstep::checkpoint
