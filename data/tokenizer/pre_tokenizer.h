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

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  // Appends the pieces of text[range], in order. Context outside the range does not exist for it.
  // Errors: kConfig, the limits of the regular expression.
  virtual Result<void> split(std::string_view text, Piece range,
                             std::vector<Piece>& pieces) const = 0;
  // What makes two of them equal; part of the tokenizer's hash.
  virtual std::string description() const = 0;
};

}  // namespace lockstep::data
