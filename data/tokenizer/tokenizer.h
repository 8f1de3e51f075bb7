// Text to token ids and back. A tokenizer sees one segment of text at a time
// (data/prepare/text_reader.h).
// Its name and hash go into the manifest: ids mean nothing without the tokenizer that made them.
// Files of other formats: data/tokenizer/open_tokenizer.h.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lockstep::data {

// Whether the name of a special token ("<|im_end|>") that occurs in a text is that token, as the
// reference implementations have it, or text like any other, as a conversation's contents must be.
enum class SpecialNames { kAreTokens, kAreText };

// Every method may be called from several threads.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual std::string name() const = 0;
  // 16 hexadecimal digits that change whenever some text would get other ids.
  virtual std::string hash() const = 0;
  virtual int64_t vocab_size() const = 0;  // every id is in [0, vocab_size())
  virtual uint32_t end_of_document() const = 0;
  // The ids that the definition puts before a text of its own (a "beginning of text"), often none.
  virtual std::span<const uint32_t> begin_of_document() const { return {}; }
  // The id of a special token, by its name.
  virtual std::optional<uint32_t> special_id(std::string_view name) const = 0;
  // Appends the ids of `text` to `ids`, without begin_of_document() and end_of_document(). Bytes
  // that are no UTF-8 never crash; a tokenizer over bytes keeps them.
  // Errors: kConfig, the definition's regular expression runs out of its limits on this text.
  virtual Result<void> encode(std::string_view text, std::vector<uint32_t>& ids,
                              SpecialNames names = SpecialNames::kAreTokens) const = 0;
  // The text of `ids`; of special tokens their names, when `show_special`, else nothing. It may end
  // inside a UTF-8 sequence: a model may sample any id. Errors: kConfig, an id >= vocab_size().
  virtual Result<std::string> decode(std::span<const uint32_t> ids,
                                     bool show_special = false) const = 0;
};

// Appends the ids of `text` as they are after `before`, which ends where `text` begins: what a
// definition puts before a text of its own (SentencePiece's "_") does not come again. A few
// hundred bytes of `before` are enough. Errors: encode's.
Result<void> encode_after(const Tokenizer& tokenizer, std::string_view before,
                          std::string_view text, std::vector<uint32_t>& ids);

// The 256 byte values as ids 0..255, end of document = 256, vocab_size 257. No padding: a model may
// round its vocabulary up (ids above 256 are then never seen), the tokens on disk need not know.
class ByteTokenizer final : public Tokenizer {
 public:
  static constexpr uint32_t kEndOfDocument = 256;
  static constexpr int64_t kVocabSize = 257;
  static constexpr std::string_view kEndName = "<|end|>";
  std::string name() const override { return "byte"; }
  std::string hash() const override;
  int64_t vocab_size() const override { return kVocabSize; }
  uint32_t end_of_document() const override { return kEndOfDocument; }
  std::optional<uint32_t> special_id(std::string_view name) const override;
  // Every name is text: kEndName is only how decode shows the id.
  Result<void> encode(std::string_view text, std::vector<uint32_t>& ids,
                      SpecialNames names = SpecialNames::kAreTokens) const override;
  Result<std::string> decode(std::span<const uint32_t> ids,
                             bool show_special = false) const override;
};

}  // namespace lockstep::data
