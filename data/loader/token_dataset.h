// Tokens on disk and the batch as a pure function: batch(data, seed, step, slot) -> tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "data/formats/token_stream.h"

namespace lockstep::data {

// Where an order of samples begins: not at step 0 in a run that went on with other data.
struct SampleOrigin {
  int64_t first_step = 0;            // its first row has index 0
  std::vector<int64_t> before = {};  // by source: samples of its order that come before; empty: 0
};

// What a slot trains on. tokens and labels are [B, T] row-major; a label of kNotCounted is one that
// the loss mask leaves out.
struct SlotBatch {
  int64_t step = 0, slot = 0;
  std::vector<int64_t> tokens, labels;
  // Places in `tokens`, ascending, that attention should not look back beyond: the first of each
  // row, and where documents start in it, if the source records that (a packed folder does).
  std::vector<int64_t> document_starts;
  int64_t valid_tokens = 0;
};

// `batch`, whose rows have `seq_len` places, all of them free: row `row` becomes tokens [first,
// first + count) of `stream`, their labels the same shifted by one. Places beyond `count` are
// filling that no label counts; attention never looks forward, so it changes nothing.
// Requires: 0 < count <= seq_len; tokens [first, first + count] lie in the stream. Errors:
// TokenStream::read's.
Result<void> read_row(const TokenStream& stream, int64_t first, int64_t count, int64_t row,
                      int64_t seq_len, SlotBatch& batch);
// Of `rows` rows, all filling.
SlotBatch empty_batch(int64_t rows, int64_t seq_len);

// A source of a data set, and how much of it is wanted.
struct StreamSource {
  std::unique_ptr<TokenStream> stream;
  int64_t weight = 1;
  uint64_t seed = 0;  // of its order
};

// One split of one or several sources, as samples of T + 1 tokens: sample i of a source is tokens
// [i*T, i*T + T] of its stream; its labels are its tokens shifted by one, so neighbours share one
// token, every token but the first is predicted once an epoch, and a tail shorter than T is left
// out. A source has (tokens - 1) / T samples.
// Row b of (step, slot) has the global index g = (step * V + slot) * B + b; SamplePlan says which
// sample of which source that is. World size never enters.
// Thread-safe but for set_origin. Owns its files. Opened by data/loader/open_dataset.h.
class TokenDataset {
 public:
  struct Options {
    std::string split = "train";
    int64_t seq_len = 0;     // T
    int64_t batch_size = 0;  // B
    int64_t slots = 0;       // V
    uint64_t seed = 0;
    int64_t vocab_size = 0;  // of the model; at least the data's
  };
  // Requires: T, B, V >= 1; every stream has T + 1 tokens; weights as Mixture.
  static std::unique_ptr<TokenDataset> over(Options options, std::vector<StreamSource> sources);
  virtual ~TokenDataset() = default;
  virtual int64_t sample_count() const = 0;  // of all sources
  // Indices count from `origin` on; at first from step 0. Of an array of batches nothing changes.
  // Requires: nobody reads meanwhile; `before` is empty, or has a number for each source.
  virtual void set_origin(const SampleOrigin&) {}
  // Pure in (step >= the origin's, slot in [0, V)). valid_tokens = B * T where the data has no loss
  // mask.
  // Errors: kCorrupt (block checksum), kCorrupt or kConfig (token >= vocabulary), naming file and
  // offset; kIo.
  virtual Result<SlotBatch> batch(int64_t step, int64_t slot) const = 0;
  // Sample `index` of the sources one after the other, in no order: [T].
  // Requires: 0 <= index < sample_count(). Errors: batch()'s.
  virtual Result<SlotBatch> sample(int64_t index) const = 0;
};

}  // namespace lockstep::data
