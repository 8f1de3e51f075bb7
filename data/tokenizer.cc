#include "data/tokenizer.h"

#include "base/hash.h"
#include "base/text.h"

namespace lockstep::data {

std::string ByteTokenizer::hash() const {
  return hex64(
      xxh3_64(std::string_view("lockstep byte tokenizer 1: bytes 0..255, end of document 256")));
}

void ByteTokenizer::encode(std::span<const char> utf8, std::vector<uint32_t>& ids) const {
  const size_t first = ids.size();
  ids.resize(first + utf8.size());
  for (size_t i = 0; i < utf8.size(); ++i) ids[first + i] = static_cast<unsigned char>(utf8[i]);
}

Result<std::string> ByteTokenizer::decode(std::span<const uint32_t> ids) const {
  std::string bytes;
  bytes.reserve(ids.size());
  for (uint32_t id : ids) {
    if (id >= kVocabSize)
      return Error{
          Code::kConfig,
          text("token ", id, " is not below the byte tokenizer's vocabulary size ", kVocabSize)};
    if (id != kEndOfDocument) bytes.push_back(static_cast<char>(id));
  }
  return bytes;
}

Result<std::unique_ptr<Tokenizer>> make_tokenizer(const std::string& name) {
  if (name == "byte") return std::unique_ptr<Tokenizer>(std::make_unique<ByteTokenizer>());
  return Error{Code::kConfig, text("unknown tokenizer \"", name, "\"; known: byte")};
}

}  // namespace lockstep::data
