// Tokens that are cut out of a text before anything else happens to it: special tokens
// ("<|endoftext|>") and others that somebody added to a vocabulary. The longest one that starts at
// a place wins; then the search goes on behind it. As `tokenizers` does it, flags included.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/pre_tokenizer.h"
#include "data/tokenizer/tokenizer.h"

namespace lockstep::data {

struct AddedToken {
  uint32_t id = 0;
  std::string content;
  bool special = false;
  bool normalized = false;                         // looked for after the text was normalized
  bool single_word = false;                        // only between non-words
  bool strips_left = false, strips_right = false;  // takes the white space beside it along
};

// A part of a text: a token, or text that is none.
struct TextPart {
  Piece range;
  std::optional<uint32_t> token;
};

class AddedTokens {
 public:
  explicit AddedTokens(std::vector<AddedToken> tokens = {});
  bool empty() const { return tokens_.empty(); }
  // Appends the parts of text[range], in order.
  void split(std::string_view text, Piece range, SpecialNames names,
             std::vector<TextPart>& parts) const;

 private:
  struct Node {
    std::vector<std::pair<uint8_t, uint32_t>> next;  // byte -> node, sorted
    int32_t token = -1;                              // that ends here
  };
  // The longest token at `at`, or -1.
  int32_t longest_at(std::string_view text, size_t at) const;
  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;
  std::vector<uint32_t> root_;  // by first byte; 0: none starts so
};

}  // namespace lockstep::data
