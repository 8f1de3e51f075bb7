// Fills live tensors from a checkpoint, whatever world size wrote it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "base/file_system.h"
#include "base/result.h"
#include "checkpoint/record/manifest.h"
#include "checkpoint/record/state.h"

namespace lockstep::checkpoint {

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

}  // namespace lockstep::checkpoint
