// Fields of tokenizer.json; vocabulary and merges of byte-level BPE, as it and vocab.json with
// merges.txt have them; and what tokens of a vocabulary are as text. Private to this folder.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "base/text.h"
#include "data/tokenizer/bpe_model.h"
#include "data/tokenizer/definitions.h"

namespace lockstep::data {

inline Error unsupported(const std::string& component, const std::string& what) {
  return Error{Code::kConfig, text(component, " ", what, " is not supported here")};
}

// The value of `key`, or null when it is missing.
inline const nlohmann::json& member(const nlohmann::json& object, const char* key) {
  static const nlohmann::json kNull;
  const auto found = object.find(key);
  return found == object.end() ? kNull : *found;
}
inline bool flag(const nlohmann::json& object, const char* key, bool otherwise) {
  const nlohmann::json& value = member(object, key);
  return value.is_null() ? otherwise : value.get<bool>();
}
inline std::string type_of(const nlohmann::json& object) {
  return object.at("type").get<std::string>();
}

using Ids = std::unordered_map<std::string, uint32_t>;  // by token, in GPT-2's characters

// SentencePiece's token of a byte: "<0x0A>".
std::string byte_token(unsigned byte);

// Throws nlohmann's exception: it is no id.
uint32_t id_of(const nlohmann::json& value);
// Tokens in GPT-2's characters to their bytes. Others than byte characters occur in tokens that no
// merge can make: names of special tokens.
// Throws as id_of.
void read_vocabulary(const nlohmann::json& vocab, Ids& ids, std::vector<std::string>& token_bytes);
// Errors: kConfig: one of the three tokens is not in the vocabulary.
Result<Merge> read_merge(const std::string& left, const std::string& right, const Ids& ids);

using AddedById = std::unordered_map<uint32_t, const AddedToken*>;
// What `ids` are together: of an added token its content, unless it is special and those are not
// shown; for a token of the model `append(id, bytes)` adds its bytes; other ids are nothing.
// Errors: kConfig: an id is not below `vocab_size`.
template <typename Append>
Result<std::string> join_tokens(std::span<const uint32_t> ids, int64_t vocab_size,
                                const AddedById& added_by_id, bool show_special, size_t model_size,
                                const Append& append) {
  std::string bytes;
  for (const uint32_t id : ids) {
    if (id >= vocab_size)
      return Error{Code::kConfig, text("token ", id, " is not below the vocabulary size ",
                                       vocab_size, " of this tokenizer")};
    if (const auto added = added_by_id.find(id); added != added_by_id.end()) {
      if (!added->second->special || show_special) bytes += added->second->content;
    } else if (id < model_size) {
      append(id, bytes);
    }
  }
  return bytes;
}

}  // namespace lockstep::data
