// Cuts pieces of tensors into chunks, has a pipeline encode them, and hands the chunks on in their
// order: to the file that this rank writes, or to a neighbour that writes it.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <span>

#include "base/result.h"
#include "checkpoint/record/manifest.h"
#include "checkpoint/record/state.h"
#include "checkpoint/shard_file/chunk_pipeline.h"

namespace lockstep::checkpoint {

// A chunk and where it belongs. Borrows both.
struct FileChunk {
  const TensorPiece* piece = nullptr;
  int64_t index = 0;  // of the chunk in the piece
  StoredChunk bytes;
};

// Thread: one at a time. Borrows the pipeline, which serves it alone.
class PieceEncoder {
 public:
  using Take = std::function<Result<void>(const FileChunk&)>;
  // Requires: `pipeline` is empty.
  PieceEncoder(ChunkPipeline& pipeline, Chunking chunking, Take take);
  ~PieceEncoder() { discard(); }
  PieceEncoder(const PieceEncoder&) = delete;
  PieceEncoder& operator=(const PieceEncoder&) = delete;

  // Some chunks may be under way after. Requires: `bytes` unchanged until flush() or discard()
  // returned. Errors: of `take`; then only discard() may be called.
  Result<void> append(const TensorPiece& piece, std::span<const std::byte> bytes);
  // Hands on what is under way. Errors: as append().
  Result<void> flush();
  // Waits for what is under way and forgets it.
  void discard() { pipeline_.discard(); }
  // Of the bytes as they were encoded, as far as they were handed on.
  const Fingerprints& sums() const { return sums_; }

 private:
  Result<void> hand_on_oldest();

  ChunkPipeline& pipeline_;
  const Chunking chunking_;
  const Take take_;
  std::deque<TensorPiece> pieces_;  // those with chunks under way: the oldest chunk is the first's
  int64_t handed_on_ = 0;           // chunks of the first one
  Fingerprints sums_;
};

}  // namespace lockstep::checkpoint
