// The normalizers of a tokenizer.json: what happens to a text before it is cut into pieces. The
// Unicode version of case and of normalization forms is that of libutf8proc.
// Immutable after it was read: thread-safe.
#pragma once

#include <memory>
#include <string>

#include "base/json.h"
#include "base/result.h"

namespace lockstep::data {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  // Errors: kConfig: a regular expression runs out of its limits.
  virtual Result<void> apply(std::string& text) const = 0;
  // Whether text may be lost at the beginning, so that the rest is not at the text's beginning.
  virtual bool may_cut_beginning() const { return false; }
};

// Precompiled, Nmt, NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Strip, Prepend, Replace, and a
// Sequence of them. Errors: kConfig: another one, or a field that is wrong. Throws nlohmann's
// exceptions.
Result<std::unique_ptr<const Normalizer>> make_normalizer(const nlohmann::json& definition);

}  // namespace lockstep::data
