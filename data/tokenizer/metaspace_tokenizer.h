// BPE or a unigram model as SentencePiece has them, in a tokenizer.json: spaces are U+2581, symbols
// are characters, and a character that is no token becomes its bytes, <0x00> to <0xFF>. As
// `tokenizers` does it: added tokens are cut out, each part between is normalized (U+2581 is
// prepended, spaces are replaced, or what a normalizer says), added tokens of the normalized text
// are cut out, and the rest is cut into words, if so, and encoded.
#pragma once

#include <memory>
#include <optional>

#include "base/result.h"
#include "data/tokenizer/bpe_tokenizer.h"
#include "data/tokenizer/normalizer.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/unigram_model.h"

namespace lockstep::data {

inline constexpr const char* kMetaspace = "\u2581";

// When a part of a text gets a "▁" before it.
enum class Prepends {
  kNever,
  kEachPart,   // always (the normalizer Prepend)
  kWhereNone,  // where it does not begin with one (Metaspace, always)
  kBeginning,  // the same, of the text's beginning alone (Metaspace, first)
};

struct MetaspaceParts {
  BpeParts bpe;  // token_bytes are the tokens' texts; no pre_tokenizer
  std::optional<UnigramModel::Definition> unigram;  // then there are no merges
  // Instead of kEachPart and of replacing spaces first; its definition is for the hash.
  std::unique_ptr<const Normalizer> normalizer;
  std::string normalizer_definition;
  Prepends prepends = Prepends::kNever;
  bool replaces_first = false;  // a normalizer replaces spaces, before added tokens are looked for
  bool leaves_spaces = false;   // nothing replaces them after that
  bool splits_words = false;    // at white space, which is lost
  bool splits = false;          // before each "▁"
  bool byte_fallback = false;
  std::optional<uint32_t> unknown;
  bool fuses_unknown = false;
  bool strips_begin = false;  // decoding leaves the first space out
};

// Errors: kConfig, what the parts contradict each other in.
Result<std::unique_ptr<Tokenizer>> make_metaspace_tokenizer(MetaspaceParts parts);

}  // namespace lockstep::data
