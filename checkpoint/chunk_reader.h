// Reads chunks of an opened rank file on several threads: pread, CRC32C, decode, XXH3.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "base/result.h"
#include "checkpoint/chunk_codec.h"
#include "checkpoint/chunk_table.h"

namespace lockstep::checkpoint {

// Borrows the entry and the file.
struct ChunkReader {
  const ManifestFile& entry;
  const ShardFile& shard;
  Codec codec;
  bool check_fletcher = false;

  // Calls use(i, raw) for each i of `rows` (row numbers), from any thread; `raw` is the whole chunk
  // with its padding. Goes on after an error.
  // Returns the errors in the order of `rows`: kCorrupt, kIo, each naming chunk and offset.
  std::vector<Error> for_each(
      const std::vector<size_t>& rows, int threads,
      const std::function<void(size_t, std::span<const std::byte>)>& use) const;

 private:
  struct Buffers;
  Result<std::span<const std::byte>> read(const ChunkRow& row, Buffers& buffers) const;
};

}  // namespace lockstep::checkpoint
