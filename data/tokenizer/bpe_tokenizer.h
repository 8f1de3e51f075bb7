// A byte-level BPE tokenizer put together from its parts, in this order: added tokens are cut out,
// the text between is normalized, added tokens of the normalized text are cut out, the rest is cut
// into pieces, and each piece is merged (or found in the cache of its thread).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/bpe_model.h"
#include "data/tokenizer/pre_tokenizer.h"
#include "data/tokenizer/tokenizer.h"

namespace lockstep::data {

struct BpeParts {
  std::string name;  // of the kind of definition: "tokenizer.json", "tekken", …
  BpeModel::Definition model;
  std::unique_ptr<PreTokenizer> pre_tokenizer;
  bool composes = false;           // Unicode normalization form C
  bool adds_prefix_space = false;  // before text that does not start with one
  std::vector<AddedToken> added_tokens;
  // False: their names in a text are always text (tekken).
  bool finds_added_tokens = true;
  std::vector<uint32_t> begin_of_document;
  uint32_t end_of_document = 0;
};

// Requires: a pre_tokenizer. Errors: kConfig, what the parts contradict each other in.
Result<std::unique_ptr<Tokenizer>> make_bpe_tokenizer(BpeParts parts);

// Normalization form C of `text` in `composed`; false when it is in that form already. Text that is
// not UTF-8 counts as such.
bool compose(std::string_view text, std::string& composed);

}  // namespace lockstep::data
