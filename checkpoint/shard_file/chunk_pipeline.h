// Compresses chunks on several threads and hands them back in the order they came.
//
//   submit … submit --> [ring of slots, encoded by the pool] --> front, pop, front, pop …
//
// One thread submits and takes; it never has more than capacity() chunks under way, so memory is
// bounded. Whether a dataset's full chunks are compressed is decided by its first chunk, whatever
// thread is faster: the same state gives the same bytes.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/queue.h"
#include "checkpoint/codec/chunk_codec.h"

namespace lockstep::checkpoint {

class ChunkPipeline {
 public:
  // `nice`: of the threads, 0 (as training) to 19 (only cores that nobody wants).
  ChunkPipeline(Codec codec, int threads, int nice);
  ~ChunkPipeline();  // waits for what is under way
  ChunkPipeline(const ChunkPipeline&) = delete;
  ChunkPipeline& operator=(const ChunkPipeline&) = delete;

  struct Chunk {
    int64_t index = 0;               // of the chunk in its dataset; 0 comes first
    std::span<const std::byte> raw;  // unchanged until popped
    size_t chunk_bytes = 0;          // its size in the file, padding included
    int64_t flat_start = 0;          // of its first element in the tensor
    Dtype dtype = Dtype::kF32;       // of its elements
  };
  Codec codec() const { return codec_; }
  size_t capacity() const { return slots_.size(); }
  bool full() const { return count_ == slots_.size(); }
  bool empty() const { return count_ == 0; }

  // Requires: not full().
  void submit(const Chunk& chunk);
  // The oldest chunk; waits until it is encoded. Valid until pop(). Requires: not empty().
  struct Encoded {
    const Chunk& chunk;
    const EncodedChunk& bytes;
  };
  Encoded front();
  void pop();
  // Waits for all and forgets them.
  void discard();

 private:
  // What the first chunk of a dataset says about the others.
  struct Verdict {
    bool known = false, compress = true;
  };
  struct Slot {
    Chunk chunk;
    EncodedChunk encoded;
    std::shared_ptr<Verdict> verdict;
    bool done = false;
  };
  void encode_until_closed();
  bool may_compress(const Slot& slot);

  const Codec codec_;
  const int nice_;
  std::vector<Slot> slots_;
  size_t first_ = 0, count_ = 0;      // the ring; of the submitting thread
  std::shared_ptr<Verdict> verdict_;  // of the dataset submitted last
  int64_t last_index_ = -1;           // of the chunk submitted last
  std::mutex mutex_;                  // guards every done, known and compress
  std::condition_variable changed_;
  BoundedQueue<Slot*> queue_;
  std::vector<std::thread> threads_;
};

}  // namespace lockstep::checkpoint
