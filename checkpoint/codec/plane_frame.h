// The byte planes of a chunk as ONE ordinary zstd frame, made and read faster than zstd would.
//
//   header (9 bytes) | raw blocks: planes 0 to k - 1 | what zstd makes of planes k to the last
//
// The low bytes of trained numbers are noise: they are split straight into raw blocks, and
// zstd sees only the planes that compress, usually the one with sign and exponent. Any decoder
// reads the frame; ours takes the planes from where they lie.
// Thread: each object belongs to one thread.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "checkpoint/codec/byte_planes.h"

namespace lockstep::checkpoint {

inline constexpr int kForcedLiterals = 1;  // ZSTD_ps_enable

// k: the first of a chunk's `planes` (4 or 2) whose bytes are uneven enough to code, `planes` if
// there is none. From a sample, in whole numbers: the same bytes give the same answer anywhere.
size_t noise_planes(std::span<const std::byte> chunk, size_t planes = kPlanes);

class PlaneFrameWriter {
 public:
  // A library that refuses `literal_mode` compresses at level 1 instead: slower, not larger by
  // much. Tests pass a mode that does not exist.
  explicit PlaneFrameWriter(int literal_mode = kForcedLiterals);
  ~PlaneFrameWriter();

  // Starts a frame in `out` for a chunk of `planes` (4 or 2), whose first `noise` (fewer) are
  // stored raw. False when these alone do not fit.
  bool begin(size_t chunk_bytes, size_t noise, std::span<std::byte> out, size_t planes = kPlanes);
  // The next words of the chunk. Requires: all of them, in order, before finish().
  void add(std::span<const std::byte> words);
  // The frame's size, or 0 when it does not fit.
  size_t finish();

 private:
  size_t compress(std::span<const std::byte> planes, std::span<std::byte> out);

  struct Context;
  std::unique_ptr<Context> context_;
  std::span<std::byte> out_;
  std::vector<std::byte> coded_;  // planes noise_ to the last, one after another
  size_t planes_ = kPlanes, plane_bytes_ = 0, noise_ = 0, done_ = 0;
};

class PlaneFrameReader {
 public:
  PlaneFrameReader();
  ~PlaneFrameReader();

  // Reads any zstd frame whose content is `chunk_bytes`, a multiple of `planes` (4 or 2), of byte
  // planes. Borrows `frame` until all words were taken. Errors: kCorrupt.
  Result<void> open(std::span<const std::byte> frame, size_t chunk_bytes, size_t planes = kPlanes);
  // The next words. Requires: open() succeeded; no more than the chunk has.
  void take(std::span<std::byte> words);

 private:
  struct Piece {  // bytes [begin, end) of the planes
    size_t begin, end;
    const std::byte* from;
  };
  bool open_spliced(std::span<const std::byte> frame, size_t chunk_bytes);
  size_t decompress(std::span<const std::byte> frame, size_t size);

  struct Context;
  std::unique_ptr<Context> context_;
  std::vector<Piece> pieces_;
  std::vector<std::byte> tail_, decoded_;
  size_t planes_ = kPlanes, plane_bytes_ = 0, done_ = 0;
  std::array<size_t, kPlanes> at_{};  // the piece in which each plane is read
};

}  // namespace lockstep::checkpoint
