#include "data/tokenizer/char_map.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>

#include "base/text.h"
#include "data/tokenizer/unicode.h"
#include "data/tokenizer/unicode_differences.h"

namespace lockstep::data {
namespace {

constexpr size_t kShortGrapheme = 5;  // bytes

// A unit of the trie, as the library Darts-clone has it.
constexpr bool has_leaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
constexpr uint32_t value_of(uint32_t unit) { return unit & 0x7fffffff; }
constexpr uint32_t label_of(uint32_t unit) { return unit & 0x800000ff; }
constexpr uint32_t offset_of(uint32_t unit) { return (unit >> 10) << ((unit & 0x200) >> 6); }

// The bytes of the grapheme that `text`, which is not empty, begins with.
size_t grapheme_bytes(std::string_view text) {
  const char* const end = text.data() + text.size();
  const auto byte = [&](size_t at) { return static_cast<uint8_t>(text[at]); };
  // Below U+0300 only a line end of two characters is one grapheme.
  if (text.size() == 1) return 1;
  if (byte(0) < 0x80 && byte(1) < 0xcc) return byte(0) == '\r' && byte(1) == '\n' ? 2 : 1;
  CodePoint point = code_point_at(text.data(), end);
  size_t bytes = point.bytes;
  utf8proc_int32_t state = 0;
  while (bytes < text.size()) {
    const CodePoint next = code_point_at(text.data() + bytes, end);
    if (!is_in(kNewExtending, next.value) &&
        utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(point.value),
                                         static_cast<utf8proc_int32_t>(next.value), &state))
      break;
    bytes += next.bytes;
    point = next;
  }
  return bytes;
}

}  // namespace

Result<CharMap> CharMap::create(std::string_view blob) {
  CharMap map;
  uint32_t trie_bytes = 0;
  if (blob.size() >= sizeof(trie_bytes)) std::memcpy(&trie_bytes, blob.data(), sizeof(trie_bytes));
  const bool fits = blob.size() >= sizeof(trie_bytes) &&
                    blob.size() - sizeof(trie_bytes) >= trie_bytes &&
                    trie_bytes >= sizeof(uint32_t) && trie_bytes % sizeof(uint32_t) == 0;
  if (!fits)
    return Error{Code::kConfig, text("precompiled_charsmap has ", blob.size(),
                                     " bytes, which is not what its first four say (", trie_bytes,
                                     " bytes of a trie)")};
  map.units_.resize(trie_bytes / sizeof(uint32_t));
  std::memcpy(map.units_.data(), blob.data() + sizeof(trie_bytes), trie_bytes);
  map.replacements_ = blob.substr(sizeof(trie_bytes) + trie_bytes);
  return map;
}

std::optional<std::string_view> CharMap::find(std::string_view words) const {
  uint32_t at = offset_of(units_[0]);
  for (const char c : words) {
    const auto byte = static_cast<uint8_t>(c);
    at ^= byte;
    // A damaged map leads nowhere: the entry does not exist.
    if (byte == 0 || at >= units_.size() || label_of(units_[at]) != byte) return std::nullopt;
    const bool leaf = has_leaf(units_[at]);
    at ^= offset_of(units_[at]);
    if (!leaf) continue;
    if (at >= units_.size() || value_of(units_[at]) >= replacements_.size()) return std::nullopt;
    const std::string_view rest = std::string_view(replacements_).substr(value_of(units_[at]));
    return rest.substr(0, rest.find('\0'));
  }
  return std::nullopt;
}

std::string CharMap::apply(std::string_view text) const {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t grapheme = grapheme_bytes(text);
    size_t taken = 0;
    if (grapheme <= kShortGrapheme) {
      if (const auto found = find(text.substr(0, grapheme))) {
        out += *found;
        taken = grapheme;
      }
    }
    while (taken < grapheme) {
      const size_t size = code_point_at(text.data() + taken, text.data() + text.size()).bytes;
      const std::string_view character = text.substr(taken, size);
      out += find(character).value_or(character);
      taken += size;
    }
    text.remove_prefix(taken);
  }
  return out;
}

}  // namespace lockstep::data
