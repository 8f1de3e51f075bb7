// Cuts a text into pieces; byte-pair merges never cross a cut. A definition is a sequence of
// stages, each of which cuts the pieces of the one before.
//
// The regular expressions of the known families run as hand-written scanners (scanner.h) over the
// Unicode table of this program; any other one runs in PCRE2 with its own Unicode version.
// Thread-safe. tests/reference/tokenizer_test.py compares both ways with `tokenizers`.
#pragma once

#include <cstdint>
#include <memory>
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

// What becomes of the matches of a pattern, as `tokenizers` names it.
enum class SplitBehavior { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };

// Cuts at the matches of `pattern`; `invert` swaps matches and what lies between.
// Errors: kConfig, the pattern does not compile.
Result<std::unique_ptr<PreTokenizer>> make_regex_splitter(const std::string& pattern,
                                                          SplitBehavior behavior, bool invert);
// PCRE2 whatever the pattern is: what the scanners are compared with.
Result<std::unique_ptr<PreTokenizer>> make_pcre2_splitter(const std::string& pattern,
                                                          SplitBehavior behavior, bool invert);
// Numbers apart from the rest: each digit alone, or runs.
std::unique_ptr<PreTokenizer> make_digit_splitter(bool individual);
// GPT-2's own, which ByteLevel applies.
std::unique_ptr<PreTokenizer> make_gpt2_splitter();
// `stages` one after the other; none of them: the text is one piece.
std::unique_ptr<PreTokenizer> make_sequence(std::vector<std::unique_ptr<PreTokenizer>> stages);

}  // namespace lockstep::data
