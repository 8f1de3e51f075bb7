// A split of a prepared folder from its first token to its last, for `lockstep eval`: rows of T
// tokens in file order, each token but the first predicted once, the last row filled up.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "base/file_system.h"
#include "data/loader/token_dataset.h"

namespace lockstep::data {

class WholeSplit {
 public:
  struct Shape {
    int64_t seq_len = 0, rows = 0;  // of a batch
  };
  // Errors: kConfig (packed for another seq_len, no two tokens, a vocabulary above `vocab_size`),
  // read_manifest's. Borrows `file_system` for as long as the result lives.
  static Result<WholeSplit> open(FileSystem& file_system, const std::filesystem::path& folder,
                                 const std::string& split, Shape shape, int64_t vocab_size);
  int64_t batches() const;
  // Requires: 0 <= index < batches(). Errors: read_row's.
  Result<SlotBatch> batch(int64_t index) const;

 private:
  WholeSplit(std::unique_ptr<TokenStream> stream, Shape shape)
      : stream_(std::move(stream)), shape_(shape) {}
  int64_t predicted() const { return stream_->tokens() - 1; }
  std::unique_ptr<TokenStream> stream_;
  Shape shape_;
};

}  // namespace lockstep::data
