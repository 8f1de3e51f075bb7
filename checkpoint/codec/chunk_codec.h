// One chunk of a dataset to the bytes in the file, and back, exactly as HDF5's filters would.
//
//   zstd  shuffle(2), zstd(32015), fletcher32(3)
//   gzip  shuffle(2), deflate(1),  fletcher32(3)   readable with no plugin
//   none  fletcher32(3)
//
// A chunk that does not compress is stored with the first two filters masked out (kRawMask).
// Thread: an encoder or decoder belongs to one thread; the functions are pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/codec/byte_planes.h"
#include "checkpoint/codec/fletcher32.h"
#include "checkpoint/record/state.h"
#include "config/choices.h"

namespace lockstep::checkpoint {

using base::Codec;
// Errors: kConfig.
Result<Codec> codec_from_name(const std::string& name);

// 1 MiB of fp32, or 512 KiB of bf16, so 256 KiB per byte plane. zstd takes one Huffman table per
// 128 KiB; smaller planes cost ratio.
inline constexpr int64_t kChunkElements = int64_t{1} << 18;
inline constexpr double kMinRatio = 1.03;    // below it compression is not worth its time
inline constexpr uint32_t kRawMask = 0b011;  // filters 0 and 1 of 3 were skipped
inline constexpr int kZstdLevel = -100;      // named in the datasets; readers do not need it
inline constexpr int kZstdFilterId = 32015;

// What a file has of a chunk. Borrows the bytes.
struct StoredChunk {
  std::span<const std::byte> bytes;  // with the 4 of fletcher32
  size_t raw_bytes = 0;              // the whole chunk, with its padding
  uint32_t filter_mask = 0;
  uint32_t crc32c = 0;  // of the stored bytes
  uint64_t xxh3 = 0;    // of the raw bytes
};

struct EncodedChunk {
  std::vector<std::byte> stored;  // grows, never shrinks; the first stored_bytes count
  size_t stored_bytes = 0;        // with the 4 bytes of fletcher32
  size_t raw_bytes = 0;           // the whole chunk, with its padding
  uint32_t filter_mask = 0;
  uint32_t crc32c = 0;       // of the stored bytes
  uint64_t xxh3 = 0;         // of the raw bytes
  uint64_t fingerprint = 0;  // of the elements, without padding

  StoredChunk view() const {
    return {std::span(stored).first(stored_bytes), raw_bytes, filter_mask, crc32c, xxh3};
  }
};

// Of one chunk's raw bytes.
struct RawSums {
  uint64_t xxh3 = 0;         // with the padding
  uint64_t fingerprint = 0;  // without it
};

class ChunkEncoder {
 public:
  explicit ChunkEncoder(Codec codec);
  ~ChunkEncoder();
  ChunkEncoder(const ChunkEncoder&) = delete;
  ChunkEncoder& operator=(const ChunkEncoder&) = delete;
  // Encodes `raw`, padded with zeros to `chunk_bytes`: HDF5's chunks are always full. Stored raw
  // when not `compress`, or when the ratio is below kMinRatio. `flat_start` is the index of the
  // first element in its tensor, for the fingerprint. Requires: sizes of whole elements, fp32 or
  // bf16.
  void encode(std::span<const std::byte> raw, size_t chunk_bytes, bool compress, EncodedChunk& out,
              int64_t flat_start = 0, Dtype dtype = Dtype::kF32);

 private:
  size_t compress_into(std::span<const std::byte> chunk, size_t planes, std::span<std::byte> out);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

class ChunkDecoder {
 public:
  explicit ChunkDecoder(Codec codec);
  ~ChunkDecoder();
  ChunkDecoder(const ChunkDecoder&) = delete;
  ChunkDecoder& operator=(const ChunkDecoder&) = delete;
  // Undoes the filters; raw.size() is the size of a whole chunk, its first `real_bytes` are the
  // elements from index `flat_start` of the tensor, the rest is padding. Does not look at
  // fletcher32, whose 4 bytes are in `stored`: its reader has checked CRC32C, and compares the
  // sums. Errors: kCorrupt.
  Result<RawSums> decode(std::span<const std::byte> stored, uint32_t filter_mask,
                         std::span<std::byte> raw, int64_t flat_start = 0,
                         size_t real_bytes = SIZE_MAX, Dtype dtype = Dtype::kF32);

 private:
  Result<void> inflate(std::span<const std::byte> stored, size_t planes, std::span<std::byte> raw);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::checkpoint
