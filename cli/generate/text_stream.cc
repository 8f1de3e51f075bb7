#include "cli/generate/text_stream.h"

#include <algorithm>

#include "data/prepare/text_reader.h"

namespace lockstep::cli {

std::string valid_utf8(std::string_view bytes) {
  std::string out;
  while (const auto bad = data::find_invalid_utf8(bytes)) {
    out.append(bytes.substr(0, *bad)).append("\xef\xbf\xbd");
    bytes.remove_prefix(*bad + 1);
  }
  return out.append(bytes);
}

Result<std::string> TextStream::add(uint32_t id) {
  constexpr size_t kLongestCharacter = 4;
  ids_.push_back(id);
  LOCKSTEP_TRY(text_, tokenizer_.decode(ids_, show_special_));
  size_t stop = text_.npos;
  for (const std::string& each : stops_) stop = std::min(stop, text_.find(each, shown_));
  if (stop != text_.npos) {
    stopped_ = true;
    text_.resize(stop);
    return piece(stop);
  }
  size_t end = may_become_stop();
  const std::string_view unshown = std::string_view(text_).substr(std::min(shown_, end));
  for (size_t back = 1; back < kLongestCharacter && back <= unshown.size(); ++back) {
    const auto lead = static_cast<unsigned char>(unshown[unshown.size() - back]);
    if ((lead & 0xc0) == 0x80) continue;  // it is not the first of a character
    const size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;
    if (length > back) end = std::min(end, text_.size() - back);
    break;
  }
  return piece(end);
}

std::string TextStream::end() { return piece(text_.size()); }

// Where the longest end of the text begins that is the beginning of a stop text.
size_t TextStream::may_become_stop() const {
  size_t first = text_.size();
  for (const std::string& stop : stops_)
    for (size_t n = std::min(stop.size() - 1, text_.size()); n > 0; --n)
      if (text_.ends_with(std::string_view(stop).substr(0, n))) {
        first = std::min(first, text_.size() - n);
        break;
      }
  return first;
}

std::string TextStream::piece(size_t end) {
  if (end <= shown_) return "";
  const std::string_view bytes = std::string_view(text_).substr(shown_, end - shown_);
  shown_ = end;
  return valid_utf8(bytes);
}

}  // namespace lockstep::cli
