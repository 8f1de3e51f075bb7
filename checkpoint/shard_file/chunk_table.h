// The chunk table of a rank file: where each chunk lies and what it must hash to, so that chunks
// are read with pread and decoded on any number of threads, past HDF5's global lock.
//
// In HDF5 it is /__chunks__, a contiguous dataset of a compound type with ChunkRow's fields; the
// manifest says at which offset. Rows come dataset by dataset, chunk by chunk.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "base/result.h"
#include "checkpoint/record/manifest.h"

namespace lockstep::checkpoint {

struct ChunkRow {        // as on disk: packed, little-endian, 40 bytes
  uint32_t dataset = 0;  // index of its piece in ManifestFile::pieces
  uint32_t chunk = 0;    // index of the chunk in its dataset
  uint64_t file_offset = 0;
  uint32_t stored_bytes = 0;  // with fletcher32's 4 bytes
  uint32_t raw_bytes = 0;     // of the whole chunk, padding included
  uint32_t filter_mask = 0;
  uint32_t crc32c = 0;  // of the stored bytes
  uint64_t xxh3 = 0;    // of the raw bytes
};
static_assert(sizeof(ChunkRow) == 40);

inline constexpr const char* kChunkTablePath = "/__chunks__";

// Elements of a chunk of a dataset of `length` elements, and how many chunks it has.
int64_t chunk_elements_of(int64_t length, const Chunking& chunking);
int64_t chunk_count(int64_t length, const Chunking& chunking);

// XXH3 over all bytes of a file of `size_bytes` outside the chunks of `rows`, in file order, as
// `read` gives them. Errors: kCorrupt when chunks overlap or end after the file; those of `read`.
using ReadAt = std::function<Result<void>(std::span<std::byte> bytes, int64_t offset)>;
Result<uint64_t> outside_hash(int64_t size_bytes, std::span<const ChunkRow> rows,
                              const ReadAt& read);

// A rank file, opened and checked against its manifest entry.
struct ShardFile {
  std::unique_ptr<File> file;
  std::vector<ChunkRow> rows;
  std::vector<int64_t> first_row;  // of each piece
};
// Opens the file and checks its size, its table and all bytes outside chunks; afterwards every row
// may be trusted. Errors: kNotFound, kCorrupt, kIo, each naming the file.
Result<ShardFile> open_shard(FileSystem& file_system, const std::filesystem::path& directory,
                             const Manifest& manifest, const ManifestFile& entry);

// "rank_00000.h5:/param/x@0 chunk 3 @8192"
std::string chunk_text(const ManifestFile& entry, const ChunkRow& row);

}  // namespace lockstep::checkpoint
