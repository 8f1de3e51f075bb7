// SentencePiece's precompiled_charsmap: what runs of bytes become when a text is normalized, as a
// double-array trie over them and a list of replacements. Applied as `tokenizers` does it
// (normalizer Precompiled), which differs from SentencePiece: a grapheme of at most 5 bytes becomes
// what the shortest entry that it begins with says; of others, each character for itself.
// Immutable after create(): thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lockstep::data {

class CharMap {
 public:
  // `blob`: the size of the trie in bytes (u32, little endian), the trie (u32 each), replacements
  // that end with a 0. Errors: kConfig: it ends too early, or an entry points out of it.
  static Result<CharMap> create(std::string_view blob);
  // What `text` becomes. Bytes that are no UTF-8 stay.
  std::string apply(std::string_view text) const;

 private:
  CharMap() = default;
  // Of the shortest entry that `words` begins with.
  std::optional<std::string_view> find(std::string_view words) const;
  std::vector<uint32_t> units_;
  std::string replacements_;
};

}  // namespace lockstep::data
