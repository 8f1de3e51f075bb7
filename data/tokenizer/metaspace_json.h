// What a tokenizer.json of SentencePiece's kind says.
#pragma once

#include "base/json.h"
#include "base/result.h"
#include "data/tokenizer/metaspace_tokenizer.h"
#include "data/tokenizer/vocabulary.h"

namespace lockstep::data {

// Its model is a unigram model.
bool is_unigram(const nlohmann::json& root);
// A unigram model, bytes as tokens of their own, or spaces as "▁": it is not byte-level BPE.
bool is_metaspace(const nlohmann::json& root);

// Its vocabulary (into `ids` as well), normalizer, pre_tokenizer and decoder. Errors: kConfig: a
// component that is not known. Throws nlohmann's exceptions.
Result<MetaspaceParts> read_metaspace(const nlohmann::json& root, Ids& ids);

}  // namespace lockstep::data
