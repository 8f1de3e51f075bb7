// The stages that a pre-tokenizer consists of.
//
// The regular expressions of the known families run as hand-written scanners (scanner.h) over the
// Unicode table of this program; any other one runs in PCRE2 with its own Unicode version.
// Thread-safe. tests/reference/tokenizer_test.py compares both ways with `tokenizers`.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "data/tokenizer/pre_tokenizer.h"

namespace lockstep::data {

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
// `stages` one after the other; none of them: the text is one piece.
std::unique_ptr<PreTokenizer> make_sequence(std::vector<std::unique_ptr<PreTokenizer>> stages);

}  // namespace lockstep::data
