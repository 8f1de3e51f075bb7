// Reads chunks of an opened rank file on several threads: pread, CRC32C, decode, XXH3.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "base/result.h"
#include "checkpoint/codec/chunk_codec.h"
#include "checkpoint/shard_file/chunk_table.h"

namespace lockstep::checkpoint {

// Borrows the entry and the file.
struct ChunkReader {
  const ManifestFile& entry;
  const ShardFile& shard;
  Codec codec;
  bool check_fletcher = false;

  // Where the i-th chunk may be decoded to, of raw_bytes; empty: into the reader's own memory.
  using Place = std::function<std::span<std::byte>(size_t i)>;
  // `raw` is the whole chunk with its padding, `fingerprint` that of its elements.
  using Use = std::function<void(size_t i, std::span<const std::byte> raw, uint64_t fingerprint)>;

  // Calls use for each i of `rows` (row numbers), from any thread. Goes on after an error.
  // Returns the errors in the order of `rows`: kCorrupt, kIo, each naming chunk and offset.
  std::vector<Error> for_each(const std::vector<size_t>& rows, int threads, const Place& place,
                              const Use& use) const;

 private:
  struct Buffers;
  Result<uint64_t> read(const ChunkRow& row, Buffers& buffers, std::span<std::byte> raw) const;
};

// Threads that keep a disk busy while others decode, when nothing else runs here: 2 to 16.
int reader_threads();

}  // namespace lockstep::checkpoint
