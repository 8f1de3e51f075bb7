#include "data/tokenizer/tokenizer.h"

#include <algorithm>

#include "base/hash.h"
#include "base/text.h"

namespace lockstep::data {

Result<void> encode_after(const Tokenizer& tokenizer, std::string_view before,
                          std::string_view text, std::vector<uint32_t>& ids) {
  if (before.empty() || text.empty()) return tokenizer.encode(text, ids);
  std::vector<uint32_t> old, whole;
  LOCKSTEP_RETURN_IF_ERROR(tokenizer.encode(before, old));
  LOCKSTEP_RETURN_IF_ERROR(tokenizer.encode(std::string(before).append(text), whole));
  const auto [end, at] = std::mismatch(old.begin(), old.end(), whole.begin(), whole.end());
  if (end != old.end()) return tokenizer.encode(text, ids);  // a token spans both
  ids.insert(ids.end(), at, whole.end());
  return {};
}

std::string ByteTokenizer::hash() const {
  return hex64(
      xxh3_64(std::string_view("lockstep byte tokenizer 1: bytes 0..255, end of document 256")));
}

std::optional<uint32_t> ByteTokenizer::special_id(std::string_view name) const {
  return name == kEndName ? std::optional(kEndOfDocument) : std::nullopt;
}

Result<void> ByteTokenizer::encode(std::string_view text, std::vector<uint32_t>& ids,
                                   SpecialNames) const {
  const size_t first = ids.size();
  ids.resize(first + text.size());
  for (size_t i = 0; i < text.size(); ++i) ids[first + i] = static_cast<unsigned char>(text[i]);
  return {};
}

Result<std::string> ByteTokenizer::decode(std::span<const uint32_t> ids, bool show_special) const {
  std::string bytes;
  bytes.reserve(ids.size());
  for (uint32_t id : ids) {
    if (id >= kVocabSize)
      return Error{
          Code::kConfig,
          text("token ", id, " is not below the byte tokenizer's vocabulary size ", kVocabSize)};
    if (id != kEndOfDocument) {
      bytes.push_back(static_cast<char>(id));
    } else if (show_special) {
      bytes += kEndName;
    }
  }
  return bytes;
}

}  // namespace lockstep::data
