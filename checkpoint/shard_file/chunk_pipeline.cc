#include "checkpoint/shard_file/chunk_pipeline.h"

#include <sys/resource.h>

#include <algorithm>

#include "base/check.h"

namespace lockstep::checkpoint {
namespace {

// Two chunks a thread: one being encoded, one waiting to be written; and two for the writer.
size_t slot_count(int threads) { return 2 * static_cast<size_t>(std::max(1, threads)) + 2; }

}  // namespace

ChunkPipeline::ChunkPipeline(Codec codec, int threads, int nice)
    : codec_(codec), nice_(nice), slots_(slot_count(threads)), queue_(slot_count(threads)) {
  for (int i = 0; i < std::max(1, threads); ++i)
    threads_.emplace_back([this] { encode_until_closed(); });
}

ChunkPipeline::~ChunkPipeline() {
  queue_.close();
  for (std::thread& thread : threads_) thread.join();
}

void ChunkPipeline::submit(const Chunk& chunk) {
  LOCKSTEP_CHECK(!full(), "capacity ", slots_.size());
  LOCKSTEP_CHECK(!chunk.raw.empty() && chunk.raw.size() <= chunk.chunk_bytes &&
                     (chunk.index == 0 || chunk.index == last_index_ + 1),
                 "chunk ", chunk.index, " of ", chunk.raw.size(), " bytes in ", chunk.chunk_bytes,
                 " comes after chunk ", last_index_);
  last_index_ = chunk.index;
  if (chunk.index == 0) verdict_ = std::make_shared<Verdict>();
  Slot& slot = slots_[(first_ + count_) % slots_.size()];
  ++count_;
  slot.chunk = chunk;
  slot.verdict = verdict_;
  slot.done = false;
  LOCKSTEP_CHECK(queue_.push(&slot), "closed while in use");
}

ChunkPipeline::Encoded ChunkPipeline::front() {
  LOCKSTEP_CHECK(!empty(), "nothing was submitted");
  Slot& slot = slots_[first_];
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return slot.done; });
  return {slot.chunk, slot.encoded};
}

void ChunkPipeline::pop() {
  LOCKSTEP_CHECK(!empty(), "nothing was submitted");
  first_ = (first_ + 1) % slots_.size();
  --count_;
}

void ChunkPipeline::discard() {
  while (!empty()) {
    front();
    pop();
  }
}

// Chunks start in order, so the first chunk of a dataset is under way before any waits for it. The
// last, partial chunk decides for itself: raw, its padding would be stored too.
bool ChunkPipeline::may_compress(const Slot& slot) {
  if (slot.chunk.index == 0 || slot.chunk.raw.size() < slot.chunk.chunk_bytes) return true;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return slot.verdict->known; });
  return slot.verdict->compress;
}

void ChunkPipeline::encode_until_closed() {
  ::setpriority(PRIO_PROCESS, 0, nice_);  // of this thread, on Linux
  ChunkEncoder encoder(codec_);
  while (const auto slot = queue_.pop()) {
    Slot& s = **slot;
    encoder.encode(s.chunk.raw, s.chunk.chunk_bytes, may_compress(s), s.encoded, s.chunk.flat_start,
                   s.chunk.dtype);
    std::lock_guard lock(mutex_);
    s.done = true;
    if (s.chunk.index == 0) {
      s.verdict->compress = s.encoded.filter_mask == 0;
      s.verdict->known = true;
    }
    changed_.notify_all();
  }
}

}  // namespace lockstep::checkpoint
