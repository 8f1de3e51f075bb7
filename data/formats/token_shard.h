// One file of tokens: a 64-byte header, `count` little-endian integers of 2 or 4 bytes, a table of
// the checksums of each block before it. The manifest has the table's checksum.
// Format: docs/FORMAT_DATA.md.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "base/result.h"
#include "data/formats/manifest.h"
#include "data/formats/shard_size.h"

namespace lockstep::data {

// create --> append x n --> seal. Until a manifest names it, the file does not count.
// Holds two blocks in memory: the first one carries the header, which is known at the end only.
// Thread: one. Borrows nothing; owns its file.
class ShardWriter {
 public:
  // Errors: kIo, kNoSpace.
  static Result<std::unique_ptr<ShardWriter>> create(FileSystem& file_system,
                                                     const std::filesystem::path& folder,
                                                     const std::string& name,
                                                     const std::string& dtype);
  // Requires: every token fits the dtype. Errors: kIo, kNoSpace; after one the writer is of no use.
  Result<void> append(std::span<const uint32_t> tokens);
  // Writes what is left and the header, and syncs the file. `split` of the result is left empty.
  Result<ShardInfo> seal();
  int64_t tokens() const { return info_.tokens; }

 private:
  ShardWriter(std::unique_ptr<File> file, std::string name, int64_t width);
  Result<void> flush_block();

  std::unique_ptr<File> file_;
  ShardInfo info_;
  int64_t width_;
  std::vector<std::byte> first_block_, block_;
  std::vector<uint64_t> table_;  // of the blocks so far; the first one's is known at the end
};

// Reads and checks one file of tokens, also of version 1, which has no table. Thread-safe.
class ShardReader {
 public:
  // Checks size and header. `vocab_size`: a token >= this is an error when it is read.
  // Errors: kCorrupt (naming the file; missing, too short, another header), kIo.
  static Result<std::unique_ptr<ShardReader>> open(FileSystem& file_system,
                                                   const std::filesystem::path& folder,
                                                   const ShardInfo& info, const std::string& dtype,
                                                   int64_t vocab_size);
  // Copies tokens [first, first + out.size()). A block's checksum is verified once, before its
  // first token leaves, and the table's before the first block's.
  // Requires: the range lies in the shard. Errors: kCorrupt, naming file, block or byte offset, and
  // token; kIo.
  Result<void> read(int64_t first, std::span<int64_t> out) const;

 private:
  ShardReader(std::unique_ptr<File> file, std::filesystem::path path, ShardInfo info, int64_t width,
              int64_t vocab_size);
  Result<void> verify_block(int64_t block) const;
  Result<void> read_table() const;
  // What vouches for a block, in the manifest's digits. Requires: the table has been read.
  std::string checksum(size_t block) const;

  std::unique_ptr<File> file_;
  std::filesystem::path path_;
  ShardInfo info_;
  int64_t width_, vocab_size_;
  int64_t end_;          // of the bytes in blocks
  int64_t block_bytes_;  // 1 MiB where the manifest has the blocks' checksums
  mutable std::mutex verify_mutex_;
  mutable std::vector<uint64_t> table_;              // empty until the first block is verified
  mutable std::vector<std::atomic<bool>> verified_;  // by block; never reset
};

}  // namespace lockstep::data
