#include "cli/generate/text_stream.h"

#include "data/prepare/text_reader.h"

namespace lockstep::cli {

Result<void> TextStream::add(uint32_t id) {
  constexpr size_t kLongestCharacter = 4;
  ids_.push_back(id);
  LOCKSTEP_TRY(text_, tokenizer_.decode(ids_));
  const auto bad = data::find_invalid_utf8(text_);
  const bool may_be_completed = bad && text_.size() - *bad < kLongestCharacter;
  show(may_be_completed ? *bad : text_.size());
  return {};
}

void TextStream::end() { show(text_.size()); }

void TextStream::show(size_t end) {
  if (end <= shown_) return;
  out_ << text_.substr(shown_, end - shown_) << std::flush;
  shown_ = end;
}

}  // namespace lockstep::cli
