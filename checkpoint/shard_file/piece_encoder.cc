#include "checkpoint/shard_file/piece_encoder.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "checkpoint/shard_file/chunk_table.h"

namespace lockstep::checkpoint {

PieceEncoder::PieceEncoder(ChunkPipeline& pipeline, Chunking chunking, Take take)
    : pipeline_(pipeline), chunking_(chunking), take_(std::move(take)) {
  LOCKSTEP_CHECK(pipeline.empty(), "the pipeline already serves another writer");
  LOCKSTEP_CHECK(chunking.elements > 0, "chunks of ", chunking.elements);
}

Result<void> PieceEncoder::append(const TensorPiece& piece, std::span<const std::byte> bytes) {
  LOCKSTEP_CHECK(piece.length > 0 && static_cast<int64_t>(bytes.size()) == piece.size_bytes(),
                 piece.dataset_path(), ": ", bytes.size(), " bytes for ", piece.length,
                 " elements");
  LOCKSTEP_CHECK(
      piece.flat_start >= 0 && piece.flat_start + piece.length <= element_count(piece.global_shape),
      piece.dataset_path(), ": ", piece.length, " elements do not lie in ",
      shape_text(piece.global_shape));
  pieces_.push_back(piece);
  const int64_t chunk_elements = chunk_elements_of(piece.length, chunking_);
  const auto chunk_bytes = static_cast<size_t>(chunk_elements * piece.element_bytes());
  for (int64_t index = 0; !bytes.empty(); ++index) {
    if (pipeline_.full()) LOCKSTEP_RETURN_IF_ERROR(hand_on_oldest());
    const size_t size = std::min(chunk_bytes, bytes.size());
    pipeline_.submit({index, bytes.first(size), chunk_bytes,
                      piece.flat_start + index * chunk_elements, piece.dtype});
    bytes = bytes.subspan(size);
  }
  return {};
}

Result<void> PieceEncoder::flush() {
  while (!pipeline_.empty()) LOCKSTEP_RETURN_IF_ERROR(hand_on_oldest());
  LOCKSTEP_CHECK(pieces_.empty(), pieces_.size(), " pieces have chunks that nobody encoded");
  return {};
}

Result<void> PieceEncoder::hand_on_oldest() {
  const auto [chunk, encoded] = pipeline_.front();
  LOCKSTEP_CHECK(!pieces_.empty(), "chunk ", chunk.index, " is of no piece");
  const TensorPiece& piece = pieces_.front();
  LOCKSTEP_CHECK(chunk.index == handed_on_, piece.dataset_path(), ": chunk ", chunk.index,
                 " comes when ", handed_on_, " were handed on");
  ++handed_on_;
  sums_[piece.tensor_key()] += encoded.fingerprint;
  const auto taken = take_({&piece, chunk.index, encoded.view()});
  if (chunk.index + 1 == chunk_count(piece.length, chunking_)) {
    pieces_.pop_front();
    handed_on_ = 0;
  }
  pipeline_.pop();
  return taken;
}

}  // namespace lockstep::checkpoint
