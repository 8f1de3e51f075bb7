// The text of ids as they are drawn, in pieces that can be shown.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/tokenizer/tokenizer.h"

namespace lockstep::cli {

// A piece is valid UTF-8: a character goes out when all of its bytes are there, and a byte that
// belongs to none goes out as U+FFFD. What may be the beginning of a stop text is held back. A stop
// text ends the text before it. Borrows the tokenizer.
class TextStream {
 public:
  // `show_special`: special tokens are shown by their names.
  TextStream(const data::Tokenizer& tokenizer, std::vector<std::string> stops,
             bool show_special = false)
      : tokenizer_(tokenizer), stops_(std::move(stops)), show_special_(show_special) {}
  // Returns what can be shown now. Errors: decode's. Requires: not stopped().
  Result<std::string> add(uint32_t id);
  // What is left, though it be half a character.
  std::string end();
  bool stopped() const { return stopped_; }
  const std::string& text() const { return text_; }  // of all ids, up to a stop text

 private:
  std::string piece(size_t end);
  size_t may_become_stop() const;

  const data::Tokenizer& tokenizer_;
  std::vector<std::string> stops_;
  bool show_special_;
  std::vector<uint32_t> ids_;
  std::string text_;
  size_t shown_ = 0;
  bool stopped_ = false;
};

// `bytes` with U+FFFD for each byte that belongs to no character.
std::string valid_utf8(std::string_view bytes);

}  // namespace lockstep::cli
