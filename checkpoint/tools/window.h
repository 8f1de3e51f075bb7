// Reading a checkpoint of any size in bounded memory: in windows of at most kWindowElements, never
// a whole tensor. What the tools share.
//
// Memory of a tool: 64 MiB a window, 2 MiB a reading thread, the manifest (about 100 bytes a
// piece), and the chunk table and HDF5 metadata of one rank file at a time (tables: 40 bytes a MiB
// of state). docs/FORMAT.md states it for people.
// Thread: one at a time.
#pragma once

#include <filesystem>
#include <vector>

#include "checkpoint/record/catalog.h"

namespace lockstep::checkpoint {

inline constexpr int64_t kWindowElements = int64_t{1} << 24;  // 64 MiB of fp32

// The pieces in their order, cut so that each window holds at most `max_elements`.
std::vector<std::vector<TensorPiece>> cut_windows(const std::vector<TensorPiece>& pieces,
                                                  int64_t max_elements = kWindowElements);
// The tensors of one kind that the manifest has, whole.
std::vector<TensorPiece> whole_pieces(const Manifest& manifest, Kind kind);

// The memory of one window.
class Window {
 public:
  void lay_out(const std::vector<TensorPiece>& pieces);
  std::vector<LiveTarget> targets();
  std::vector<LivePiece> pieces() const;

 private:
  std::vector<TensorPiece> pieces_;
  std::vector<std::byte> bytes_;  // grows, never shrinks
};

// A checkpoint that is read window by window; its chunks are checked on the way.
class CheckpointSource {
 public:
  // Errors: those of read_manifest.
  static Result<CheckpointSource> open(FileSystem& file_system,
                                       const std::filesystem::path& directory, int threads);
  const Manifest& manifest() const { return manifest_; }
  const std::filesystem::path& directory() const { return directory_; }

  // Errors: those of load_pieces.
  Result<void> read(const std::vector<LiveTarget>& targets);
  // Whether what was read sums up to the fingerprints. Requires: each tensor that was read was read
  // whole, once. Errors: kCorrupt naming tensors.
  Result<void> check_sums() const;

 private:
  CheckpointSource(FileSystem& file_system, std::filesystem::path directory, Manifest manifest,
                   int threads)
      : file_system_(&file_system),
        directory_(std::move(directory)),
        manifest_(std::move(manifest)),
        threads_(threads) {}

  FileSystem* file_system_;
  std::filesystem::path directory_;
  Manifest manifest_;
  int threads_;
  Fingerprints sums_;
};

}  // namespace lockstep::checkpoint
