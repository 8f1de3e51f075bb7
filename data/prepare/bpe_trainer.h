// Learns a byte-level BPE vocabulary: again and again the most frequent pair of neighbours becomes
// a token. Deterministic: pairs of equal frequency in the order of their ids. The pieces are those
// of GPT-2's regular expression, over the Unicode table of this program.
//
// The same texts give the same file as BpeTrainer of the Python package `tokenizers` (with
// ByteLevel's alphabet and pre-tokenizer); tests/reference/train_bpe_test.py compares them.
// Thread: one. Memory: grows with the number of different pieces, kMaxPieces at most.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/file_system.h"
#include "base/hash.h"
#include "base/result.h"
#include "data/prepare/prepare.h"
#include "data/tokenizer/pre_tokenizer.h"

namespace lockstep::data {

inline constexpr int64_t kMaxTrainedVocab = int64_t{1} << 20;
inline constexpr int64_t kTrainedTextBytes = int64_t{256} << 20;  // more text teaches little

class BpeTrainer {
 public:
  static constexpr size_t kMaxPieces = size_t{1} << 22;
  // The ids of `special_tokens` come first, then the 256 bytes, then the merges.
  explicit BpeTrainer(std::vector<std::string> special_tokens);
  // Counts the pieces of `text`. Once there are kMaxPieces, those that occurred once are forgotten.
  Result<void> add(std::string_view text);
  // A tokenizer.json of `vocab_size` tokens, or fewer when the text has no more pairs.
  // Requires: vocab_size >= minimum().
  std::string tokenizer_json(int64_t vocab_size) const;
  int64_t minimum() const { return static_cast<int64_t>(special_tokens_.size()) + 256; }

 private:
  struct WordsHash {
    using is_transparent = void;  // a view finds its string
    size_t operator()(std::string_view words) const { return xxh3_64(as_bytes(words)); }
  };
  const std::vector<std::string> special_tokens_;
  const std::unique_ptr<PreTokenizer> pre_tokenizer_;
  // Of pieces.
  std::unordered_map<std::string, int64_t, WordsHash, std::equal_to<>> counts_;
  std::vector<Piece> pieces_;  // of one text, kept for its memory
};

// A tokenizer.json learnt from what `options` would prepare, held-out text excepted. Of input above
// kTrainedTextBytes it takes a share of the segments or records, by a hash of their words.
// <|endoftext|> ends a document; the tokens of a chat template are special.
// Errors: kConfig (vocab_size, and as prepare), kNotFound, kIo.
Result<std::string> train_tokenizer(FileSystem& file_system, const PrepareOptions& options,
                                    int64_t vocab_size);

}  // namespace lockstep::data
