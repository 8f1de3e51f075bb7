// A piece of a document, and the document as ids.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "data/tokenizer/tokenizer.h"

namespace lockstep::data {

struct Passage {
  std::optional<uint32_t> token = {};  // a special token; else `words`
  std::string words = {};
  bool in_loss = true;
  SpecialNames names = SpecialNames::kAreText;
  // Is tokenized together with the passage before it, which has the same `names` and no token.
  bool joins = false;
  // Of a document's first: nothing stands before it, not even what the tokenizer puts before every
  // text.
  bool begins_document = false;
};

// Appends what the tokenizer puts before a text, unless the first passage begins the document, and
// the ids of the passages; `in_loss` gets a byte for each: 1 if it is learnt, `begin_in_loss` for
// the former. A token that holds words of two passages that join is learnt if one of them is.
// Errors: encode's.
Result<void> encode_document(const Tokenizer& tokenizer, const std::vector<Passage>& passages,
                             bool begin_in_loss, std::vector<uint32_t>& ids,
                             std::vector<uint8_t>& in_loss);

}  // namespace lockstep::data
