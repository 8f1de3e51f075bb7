// Shows the text of ids while they are drawn.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "data/tokenizer/tokenizer.h"

namespace lockstep::cli {

// Borrows both. A character goes out when all of its bytes are there.
class TextStream {
 public:
  TextStream(const data::Tokenizer& tokenizer, std::ostream& out)
      : tokenizer_(tokenizer), out_(out) {}
  // Errors: decode's.
  Result<void> add(uint32_t id);
  // What is left, though it be half a character.
  void end();
  const std::string& text() const { return text_; }  // of all ids

 private:
  void show(size_t end);
  const data::Tokenizer& tokenizer_;
  std::ostream& out_;
  std::vector<uint32_t> ids_;
  std::string text_;
  size_t shown_ = 0;
};

}  // namespace lockstep::cli
