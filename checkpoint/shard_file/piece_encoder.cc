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
  return {};
}

Result<void> PieceEncoder::hand_on_oldest() {
  const auto [chunk, encoded] = pipeline_.front();
  const TensorPiece& piece = pieces_.front();
  sums_[piece.tensor_key()] += encoded.fingerprint;
  const auto taken = take_({&piece, chunk.index, encoded.view()});
  if (chunk.index + 1 == chunk_count(piece.length, chunking_)) pieces_.pop_front();
  pipeline_.pop();
  return taken;
}

}  // namespace lockstep::checkpoint
