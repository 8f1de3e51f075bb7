// A piece of a document that is tokenized alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "data/tokenizer/tokenizer.h"

namespace lockstep::data {

struct Passage {
  std::optional<uint32_t> token;  // a special token; else `words`
  std::string words;
  bool in_loss = true;
  SpecialNames names = SpecialNames::kAreText;
};

}  // namespace lockstep::data
