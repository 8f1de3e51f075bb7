// Writes a whole checkpoint from one process, in bounded memory: what reshard and import share.
//
//   1. the directory; 2. rank file by rank file, window by window, each fsynced, and the parts of
//   the manifest where it is in parts; 3. fingerprints, coverage; 4. manifest.json: from here on it
//   is a checkpoint; 5. LATEST, index.h5
//
// What an error leaves is removed; what a kill leaves has no manifest, so no reader takes it for a
// checkpoint. Names are attempt-unique: nothing is overwritten.
// Thread: the caller's, and `threads` compressors.
#pragma once

#include "checkpoint/codec/chunk_codec.h"
#include "checkpoint/record/attempt.h"
#include "checkpoint/tools/progress.h"
#include "checkpoint/tools/window.h"

namespace lockstep::checkpoint {

inline constexpr int64_t kMaxWrittenRanks = 65536;

struct WholeCheckpoint {
  std::filesystem::path folder;  // of checkpoints; made when missing
  Attempt attempt;               // names the directory
  int64_t world_size = 1;        // 1 to kMaxWrittenRanks
  Codec codec = Codec::kZstd;
  int threads = 1;
  std::vector<ManifestTensor> tensors;  // sorted; a fingerprint of "" is whatever the bytes give
  std::string trainer_state = "{}";
  std::optional<double> validation_loss = {};
};

// What rank `rank` of `world_size` writes: the tensors by name are one row of tiles of 4096
// elements, a tensor's last one shorter; rank r of W has tiles [n*r/W, n*(r+1)/W) of n. By kind.
std::vector<TensorPiece> pieces_of_rank(const std::vector<ManifestTensor>& tensors, int64_t rank,
                                        int64_t world_size);

// Fills targets with the state that is written.
using Fill = std::function<Result<void>(const std::vector<LiveTarget>& targets)>;

// The new checkpoint's directory. Errors: those of `fill`; kConfig when the folder has an attempt
// at that step already; kCorrupt when the bytes do not sum up to a given fingerprint; kIo,
// kNoSpace.
Result<std::filesystem::path> write_whole(FileSystem& file_system, const WholeCheckpoint& whole,
                                          const Fill& fill, const Progress& progress);

}  // namespace lockstep::checkpoint
