// Cuts a text into pieces; byte-pair merges never cross a cut. A definition is a sequence of
// stages, each of which cuts the pieces of the one before.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lockstep::data {

// A part of the text that is split: bytes [begin, end).
struct Piece {
  uint32_t begin, end;
};

// What may still be spent on the regular expressions of one text, in the steps that PCRE2 counts
// (pcre2_set_match_limit): 1 to 2 ns each, 13 ns where PCRE2 cannot compile an expression.
struct SplitBudget {
  // The known families need 3 steps a byte at most, whatever the text. The rest is for expressions
  // whose work is the square of a run's length, as \s+$ of DeepSeek's on 15,000 spaces and a digit.
  static constexpr uint64_t kStepsPerText = uint64_t{1} << 28, kStepsPerByte = 2000;
  explicit SplitBudget(size_t text_bytes)
      : steps_left(kStepsPerText + kStepsPerByte * text_bytes) {}
  uint64_t steps_left;
};

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  // Appends the pieces of text[range], in order. Context outside the range does not exist for it.
  // Errors: kConfig, the limits of the regular expression, and no steps left in `budget`.
  virtual Result<void> split(std::string_view text, Piece range, SplitBudget& budget,
                             std::vector<Piece>& pieces) const = 0;
  // What makes two of them equal; part of the tokenizer's hash.
  virtual std::string description() const = 0;
};

}  // namespace lockstep::data
