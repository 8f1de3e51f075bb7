// Text to token ids and back. A tokenizer sees one segment of text at a time (data/text_reader.h).
// Its name and hash go into the manifest: ids mean nothing without the tokenizer that made them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace lockstep::data {

// Stateless after it is made: thread-safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual std::string name() const = 0;
  // 16 hexadecimal digits that change whenever some text would get other ids.
  virtual std::string hash() const = 0;
  virtual int64_t vocab_size() const = 0;  // every id is in [0, vocab_size())
  virtual uint32_t end_of_document() const = 0;
  // Appends the ids of `utf8` to `ids`. Never appends end_of_document().
  // Requires: valid UTF-8. Ensures: decode(ids) == utf8.
  virtual void encode(std::span<const char> utf8, std::vector<uint32_t>& ids) const = 0;
  // end_of_document() decodes to nothing. The result may end inside a UTF-8 sequence: a model may
  // sample any id. Errors: kConfig, an id >= vocab_size().
  virtual Result<std::string> decode(std::span<const uint32_t> ids) const = 0;
};

// The 256 byte values as ids 0..255, end of document = 256, vocab_size 257. No padding: a model may
// round its vocabulary up (ids above 256 are then never seen), the tokens on disk need not know.
class ByteTokenizer final : public Tokenizer {
 public:
  static constexpr uint32_t kEndOfDocument = 256;
  static constexpr int64_t kVocabSize = 257;
  std::string name() const override { return "byte"; }
  std::string hash() const override;
  int64_t vocab_size() const override { return kVocabSize; }
  uint32_t end_of_document() const override { return kEndOfDocument; }
  void encode(std::span<const char> utf8, std::vector<uint32_t>& ids) const override;
  Result<std::string> decode(std::span<const uint32_t> ids) const override;
};

// By name: "byte". Errors: kConfig, naming the known ones.
Result<std::unique_ptr<Tokenizer>> make_tokenizer(const std::string& name);

}  // namespace lockstep::data
