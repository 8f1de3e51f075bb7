// Encoded chunks on their way from a rank to the neighbour that writes its file, through memory
// that both share. A ring of few chunks: who encodes waits for who writes.
//
//   ChunkOutbox (the rank that has them)           ChunkInbox (the rank that writes)
//     create, address()     -- told by others -->    open
//     put … put             -- [ring] ---------->    front, pop … front, pop
//     finish | fail         ------------------->     front: none any more | an error
//     an error from each    <-------------------     abandon
//
// Nothing waits for ever: not longer than `Patience` without any move of the other side. Each end
// sees at once that the process at the other one has died.
// Thread: one at each end.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "base/shared_region.h"
#include "checkpoint/shard_file/piece_encoder.h"

namespace lockstep::checkpoint {

inline constexpr size_t kChunksInRing = 4;  // each takes its memory when it is first used

struct Patience {
  std::chrono::milliseconds deadline;  // without a move of the other side
  const std::atomic<bool>* gave_up;    // this side waits no more; outlives both ends
};

class ChunkOutbox {
 public:
  // For rank `writer`, whose process made `page`, which outlives this. Errors: kIo.
  static Result<ChunkOutbox> create(int writer, const SharedRegion& page, Patience patience);
  std::string address() const { return region_.address(); }

  // Copies the chunk; waits for room. Errors: the writer's where it gave up; kIo (its process has
  // died), kTimeout, kAborted.
  Result<void> put(const FileChunk& chunk);
  // No more chunks; waits until all were taken. Errors: as put().
  Result<void> finish();
  // Tells the writer that there will be no more, and why.
  void fail(const Error& why);

 private:
  ChunkOutbox(SharedRegion region, int writer, const SharedRegion& page, Patience patience)
      : region_(std::move(region)), writer_(writer), page_(&page), patience_(patience) {}
  template <typename Ready>
  Result<void> wait_until(const Ready& ready);

  SharedRegion region_;
  int writer_;
  const SharedRegion* page_;
  Patience patience_;
};

class ChunkInbox {
 public:
  // Of rank `from`. Errors: kIo (not a process of this machine and user, or gone).
  static Result<ChunkInbox> open(int from, const std::string& address, Patience patience);

  // The oldest chunk, valid until pop(); waits for it. Nothing: all were taken. Errors, each naming
  // the rank: its own where it failed; kIo (its process has died), kCorrupt (not what was put),
  // kTimeout, kAborted.
  Result<std::optional<FileChunk>> front();
  void pop();
  // The other side is told so. Harmless when all chunks were taken.
  void abandon(const Error& why);

 private:
  ChunkInbox(SharedRegion region, int from, Patience patience)
      : region_(std::move(region)), from_(from), patience_(patience) {}
  Result<bool> wait_for_one();
  Result<FileChunk> read_oldest();

  SharedRegion region_;
  int from_;
  Patience patience_;
  std::unique_ptr<TensorPiece> piece_;  // that the chunks now are of
  bool in_hand_ = false;                // front() gave one, which pop() has still to take
};

}  // namespace lockstep::checkpoint
