// Writes one rank's file of one checkpoint, and into it what neighbours hand over of theirs.
// Committing it is the engine's business.
//
//   open --> append x n --> seal --> (rank 0, all digests in) manifest.json
//     +---------+------------+--> abandon, or destruction: a file no manifest names
//
// On disk: 1. chunks; 2. the chunk table; 3. H5Fclose; 4. fsync file; 5. fsync directory.
// A crash before 5 leaves a file that no manifest names; the next start removes it.
// tests/crash/crash_matrix_test.cc stops at every call to the file system.
// Thread: one at a time. Owns the file. Borrows `file_system` and `pipeline`, which outlive it.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "base/file_system.h"
#include "base/result.h"
#include "checkpoint/record/manifest.h"
#include "checkpoint/record/state.h"
#include "checkpoint/shard_file/chunk_pipeline.h"
#include "checkpoint/shard_file/chunk_ring.h"

namespace lockstep::checkpoint {

std::string hdf5_version();  // of the library that is linked: "1.10.8"
// Whether HDF5 stores a chunk of `codec` through the file driver, in memory, and reads back what it
// was. Errors: kIo with HDF5's reason.
Result<void> try_hdf5(Codec codec);

struct ShardDigest {
  ManifestFile file;
  int64_t raw_bytes = 0, stored_bytes = 0;  // of the tensors; of the file
  double sync_s = 0;
  Fingerprints sums;  // of this rank's bytes as they were encoded
};

class ShardFileWriter {
 public:
  struct Options {
    std::filesystem::path directory;  // exists already
    int32_t rank = 0;
    int64_t world_size = 1, step = 0, generation = 0;  // root attributes, for people
    Chunking chunking{kChunkElements};
    // Behind each own chunk one of each is written, as long as there are any, so that the same
    // states give the same file; seal() waits for the rest. Its errors are append()'s and seal()'s.
    std::span<ChunkInbox> neighbours = {};
  };
  // Creates rank_%05d.h5. Requires: `pipeline` is empty and serves one writer at a time.
  // Errors: kIo, kNoSpace.
  static Result<ShardFileWriter> open(FileSystem& file_system, ChunkPipeline& pipeline,
                                      const Options& options);
  ShardFileWriter(ShardFileWriter&&) noexcept;
  ShardFileWriter& operator=(ShardFileWriter&&) noexcept;
  ~ShardFileWriter();

  // Compresses and writes `bytes` as the dataset of `piece`; some chunks may be under way after.
  // Requires: not sealed; `piece` is new; `bytes` unchanged until flush(), seal() or abandon()
  // returned. Errors: kIo, kNoSpace. After an error only abandon() may be called.
  Result<void> append(const TensorPiece& piece, std::span<const std::byte> bytes);
  // Writes the chunks under way: the bytes of every append() are free again. Errors: as append().
  Result<void> flush();

  // The rest of step 1 to step 5. Ensures: on success the file survives power loss.
  Result<ShardDigest> seal();
  // Waits for the pipeline, closes the file and removes it.
  void abandon() noexcept;

 private:
  struct Impl;
  explicit ShardFileWriter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

std::string shard_file_name(int rank);  // "rank_00003.h5"

}  // namespace lockstep::checkpoint
