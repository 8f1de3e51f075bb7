#include "base/printable.h"

namespace lockstep {
inline namespace base {
namespace {

constexpr unsigned char kFirstOfTwo = 0xc2;  // U+0080 to U+00BF begin with it

bool is_control(unsigned char c) { return c < 0x20 || c == 0x7f; }

void append_escaped(std::string& out, unsigned char c) {
  constexpr const char* kDigits = "0123456789abcdef";
  out += "\\x";
  out += kDigits[c >> 4];
  out += kDigits[c & 15];
}

}  // namespace

std::string printable(std::string_view text, std::string_view kept) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    if (is_control(c) && kept.find(text[i]) == kept.npos) {
      append_escaped(out, c);
    } else if (c == kFirstOfTwo && next >= 0x80 && next < 0xa0) {
      append_escaped(out, next);
      ++i;
    } else {
      out += text[i];
    }
  }
  return out;
}

size_t unfinished_control(std::string_view text) {
  return !text.empty() && static_cast<unsigned char>(text.back()) == kFirstOfTwo ? 1 : 0;
}

}  // namespace base
}  // namespace lockstep
