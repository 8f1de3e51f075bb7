// Best-fit packing: whole documents into bins of exactly seq_len tokens, one after the other in the
// stream, so that sample i of T = seq_len tokens is bin i, and no document that fits into a sample
// is cut ("Fewer Truncations Improve Language Modeling", arXiv 2404.10830).
//
// 1. Documents are gathered until they hold kWindowTokens. One of more than seq_len tokens gives
//    whole bins at once; its rest is packed like a document.
// 2. Longest first, and in their order when equal, each goes to the bin with the least room that
//    still holds it, the oldest of equal ones; else to a new bin.
// 3. Bins go out in the order in which they were opened, filled up with end_of_document.
// Neither that filling nor the first token of a document counts in the loss: what comes before it
// is another document. The result depends on the documents and their order alone.
// Thread: one. Memory: about 5 bytes for each token of a window.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/result.h"

namespace lockstep::data {

class Packer {
 public:
  static constexpr int64_t kWindowTokens = int64_t{1} << 24;
  // Tokens of the stream, and of each whether it counts as a label and whether a document starts.
  using Sink =
      std::function<Result<void>(std::span<const uint32_t> tokens, std::span<const uint8_t> in_loss,
                                 std::span<const uint8_t> starts)>;
  // Requires: seq_len >= 1.
  Packer(int64_t seq_len, uint32_t end_of_document, Sink sink)
      : seq_len_(static_cast<size_t>(seq_len)), end_(end_of_document), sink_(std::move(sink)) {}

  // More of the document that is open. Errors: the sink's.
  Result<void> append(std::span<const uint32_t> tokens, std::span<const uint8_t> in_loss);
  Result<void> end_document();
  // Packs what is left, and ends the stream with one token more, the last label's place.
  // Requires: no open document.
  Result<void> seal();
  int64_t filling_tokens() const { return filling_tokens_; }

 private:
  struct Part {  // of tokens_
    size_t begin = 0, length = 0;
  };
  Result<void> pack();
  Result<void> emit(std::span<const Part> parts);

  const size_t seq_len_;
  const uint32_t end_;
  const Sink sink_;
  std::vector<uint32_t> tokens_;  // of the window, in order
  std::vector<uint8_t> in_loss_;
  std::vector<Part> documents_;
  size_t open_begin_ = 0;  // of the open document, in tokens_
  bool any_ = false;       // something went out
  int64_t filling_tokens_ = 0;
};

}  // namespace lockstep::data
