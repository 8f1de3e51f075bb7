#include "data/tokenizer/added_tokens.h"

#include <algorithm>

#include "data/tokenizer/unicode.h"

namespace lockstep::data {

namespace {

bool is_word_before(std::string_view text, uint32_t begin, uint32_t at) {
  return at > begin && (code_point_before(text.data() + begin, text.data() + at).classes & kWord);
}
bool is_word_at(std::string_view text, uint32_t at, uint32_t end) {
  return at < end && (code_point_at(text.data() + at, text.data() + end).classes & kWord);
}
// Where the white space that ends at `at` begins.
uint32_t before_spaces(std::string_view text, uint32_t begin, uint32_t at) {
  while (at > begin) {
    const CodePoint point = code_point_before(text.data() + begin, text.data() + at);
    if (!(point.classes & kSpace)) break;
    at -= point.bytes;
  }
  return at;
}
uint32_t after_spaces(std::string_view text, uint32_t at, uint32_t end) {
  while (at < end) {
    const CodePoint point = code_point_at(text.data() + at, text.data() + end);
    if (!(point.classes & kSpace)) break;
    at += point.bytes;
  }
  return at;
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens)
    : tokens_(std::move(tokens)), nodes_(1), root_(256, 0) {
  for (size_t i = 0; i < tokens_.size(); ++i) {
    uint32_t node = 0;
    for (const char c : tokens_[i].content) {
      const auto byte = static_cast<uint8_t>(c);
      auto& next = nodes_[node].next;
      auto place = std::lower_bound(next.begin(), next.end(), std::pair(byte, uint32_t{0}));
      if (place == next.end() || place->first != byte) {
        const auto made = static_cast<uint32_t>(nodes_.size());
        next.insert(place, {byte, made});
        nodes_.emplace_back();
        node = made;
      } else {
        node = place->second;
      }
    }
    if (node != 0) nodes_[node].token = static_cast<int32_t>(i);
  }
  for (const auto& [byte, node] : nodes_[0].next) root_[byte] = node;
}

int32_t AddedTokens::longest_at(std::string_view text, size_t at) const {
  uint32_t node = root_[static_cast<uint8_t>(text[at])];
  int32_t longest = nodes_[node].token;
  for (size_t i = at + 1; i < text.size(); ++i) {
    const auto& next = nodes_[node].next;
    const auto byte = static_cast<uint8_t>(text[i]);
    const auto place = std::lower_bound(next.begin(), next.end(), std::pair(byte, uint32_t{0}));
    if (place == next.end() || place->first != byte) break;
    node = place->second;
    if (nodes_[node].token >= 0) longest = nodes_[node].token;
  }
  return longest;
}

void AddedTokens::split(std::string_view whole, Piece range, SpecialNames names,
                        std::vector<TextPart>& parts) const {
  const std::string_view text = whole.substr(0, range.end);
  uint32_t given = range.begin;
  for (uint32_t at = range.begin; at < range.end && !tokens_.empty();) {
    if (root_[static_cast<uint8_t>(text[at])] == 0) {
      ++at;
      continue;
    }
    const int32_t found = longest_at(text, at);
    if (found < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<size_t>(found)];
    uint32_t begin = at;
    uint32_t end = at + static_cast<uint32_t>(token.content.size());
    at = end;
    if (token.special && names == SpecialNames::kAreText) continue;
    if (token.single_word &&
        (is_word_before(text, range.begin, begin) || is_word_at(text, end, range.end)))
      continue;
    // The white space may belong to the token before already.
    if (token.strips_left) begin = std::max(before_spaces(text, range.begin, begin), given);
    if (token.strips_right) end = after_spaces(text, end, range.end);
    if (given < begin) parts.push_back({{given, begin}, std::nullopt});
    parts.push_back({{begin, end}, token.id});
    given = end;
  }
  if (given < range.end) parts.push_back({{given, range.end}, std::nullopt});
}

}  // namespace lockstep::data
