// Tokens on disk and the batch as a pure function: batch(manifest, seed, step, slot) -> tokens.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/file_system.h"
#include "base/result.h"
#include "data/manifest.h"

namespace lockstep::data {

// What a slot trains on. tokens and labels are [B, T] row-major; label -100 = not counted.
struct SlotBatch {
  int64_t step = 0, slot = 0;
  std::vector<int64_t> tokens, labels;
  int64_t valid_tokens = 0;
};

// One split of a folder made by `prepare`, as samples of T + 1 tokens: sample i is tokens
// [i*T, i*T + T] of the split's concatenated shards; its labels are its tokens shifted by one, so
// neighbours share one token, every token but the first is predicted once an epoch, and a tail
// shorter than T is left out. sample_count = (tokens - 1) / T.
// Row b of (step, slot) has the global index g = (step * V + slot) * B + b. Epoch
// e = g / sample_count visits all samples once, in the order SampleOrder(sample_count, seed, e).
// World size never enters.
// Thread-safe. Owns its files.
class TokenDataset {
 public:
  struct Options {
    std::filesystem::path folder;
    std::string split = "train";
    int64_t seq_len = 0;     // T
    int64_t batch_size = 0;  // B
    int64_t slots = 0;       // V
    uint64_t seed = 0;
    int64_t vocab_size = 0;  // of the model; at least the data's
  };
  // Requires: T, B, V >= 1. Errors: kNotFound, kCorrupt (manifest, size or header of a shard),
  // kConfig (seq_len longer than the split, vocabulary too small).
  static Result<std::unique_ptr<TokenDataset>> open(FileSystem& file_system, Options options);
  virtual ~TokenDataset() = default;
  virtual int64_t sample_count() const = 0;
  virtual const DatasetManifest& manifest() const = 0;
  // Pure in (step >= 0, slot in [0, V)). valid_tokens = B * T here: every label counts.
  // Errors: kCorrupt (block checksum, token >= vocabulary) naming file and offset; kIo.
  virtual Result<SlotBatch> batch(int64_t step, int64_t slot) const = 0;
};

// A thread that keeps the next slots of one rank ready. Borrows the dataset and the clock.
// Thread: next() from one thread; wait_s() from any.
class SlotLoader {
 public:
  static constexpr int64_t kMaxPrefetch = 1024;
  // Serves, for each step from `first_step` on, `slots_of_rank` in that order. It never ends by
  // itself. Requires: 1 <= prefetch <= kMaxPrefetch (slots kept ready). An empty `slots_of_rank`
  // starts no thread.
  static std::unique_ptr<SlotLoader> create(const TokenDataset& dataset,
                                            std::vector<int64_t> slots_of_rank, int64_t first_step,
                                            int64_t prefetch, Clock& clock = system_clock());
  virtual ~SlotLoader() = default;
  // The next slot; the seconds waited for it are added to wait_s(). Errors: batch()'s, then the
  // same one again at every call; kBug when the rank has no slot.
  virtual Result<SlotBatch> next() = 0;
  virtual double wait_s() const = 0;
};

}  // namespace lockstep::data
