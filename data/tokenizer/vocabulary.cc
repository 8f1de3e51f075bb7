#include "data/tokenizer/vocabulary.h"

#include <utility>

#include "base/text.h"
#include "data/tokenizer/scanner.h"
#include "data/tokenizer/unicode.h"

namespace lockstep::data {

using nlohmann::json;

uint32_t id_of(const json& value) {
  const auto id = value.get<int64_t>();
  if (!value.is_number_integer() || id < 0 || id >= kMaxVocab)
    throw json::other_error::create(
        501, text("id ", value.dump(), " is not in [0, ", kMaxVocab, ")"), nullptr);
  return static_cast<uint32_t>(id);
}

std::string byte_token(unsigned byte) {
  constexpr const char* kDigits = "0123456789ABCDEF";
  return text("<0x", kDigits[byte / 16], kDigits[byte % 16], ">");
}

Result<Merge> read_merge(const std::string& left, const std::string& right, const Ids& ids) {
  Merge merge{};
  const std::string joined = left + right;
  const std::pair<const std::string&, uint32_t&> wanted[] = {
      {left, merge.left}, {right, merge.right}, {joined, merge.joined}};
  for (const auto& [token, id] : wanted) {
    const auto found = ids.find(token);
    if (found == ids.end())
      return Error{Code::kConfig, text("the merge \"", left, " ", right, "\" needs \"", token,
                                       "\", which is not in the vocabulary")};
    id = found->second;
  }
  return merge;
}

void read_vocabulary(const json& vocab, Ids& ids, std::vector<std::string>& token_bytes) {
  for (const auto& [token, value] : vocab.items()) {
    const uint32_t id = id_of(value);
    ids.emplace(token, id);
    if (id >= token_bytes.size()) token_bytes.resize(id + 1);
    std::string bytes;
    if (bytes_of_characters(token, bytes)) token_bytes[id] = bytes;
  }
}

}  // namespace lockstep::data
