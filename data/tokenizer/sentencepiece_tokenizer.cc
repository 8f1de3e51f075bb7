#include <sentencepiece_processor.h>

#include <algorithm>

#include "base/hash.h"
#include "base/text.h"
#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/definitions.h"

namespace lockstep::data {

namespace {

class SentencePieceTokenizer final : public Tokenizer {
 public:
  // What differs from the model alone is in `hash` as well.
  struct Parts {
    std::string hash;
    std::vector<uint32_t> begin;
    uint32_t end = 0;
    std::vector<AddedToken> added;  // that are no pieces
  };
  SentencePieceTokenizer(std::unique_ptr<sentencepiece::SentencePieceProcessor> processor,
                         Parts parts)
      : processor_(std::move(processor)),
        parts_(std::move(parts)),
        added_(parts_.added),
        vocab_size_(processor_->GetPieceSize()) {
    for (const AddedToken& token : parts_.added)
      vocab_size_ = std::max(vocab_size_, int64_t{token.id} + 1);
  }
  std::string name() const override { return "sentencepiece"; }
  std::string hash() const override { return parts_.hash; }
  int64_t vocab_size() const override { return vocab_size_; }
  uint32_t end_of_document() const override { return parts_.end; }
  std::span<const uint32_t> begin_of_document() const override { return parts_.begin; }
  std::optional<uint32_t> special_id(std::string_view name) const override {
    if (const AddedToken* const token = added_token(name)) return token->id;
    const int id = processor_->PieceToId({name.data(), name.size()});
    if (processor_->IsUnknown(id) && processor_->IdToPiece(id) != name) return std::nullopt;
    return static_cast<uint32_t>(id);
  }

  // Control symbols are never found in a text, whatever `names` says: the library's own rule.
  Result<void> encode(std::string_view text, std::vector<uint32_t>& ids,
                      SpecialNames names) const override {
    LOCKSTEP_RETURN_IF_ERROR(check_added(text, names));
    std::vector<int> made;
    const auto status = processor_->Encode({text.data(), text.size()}, &made);
    if (!status.ok()) return Error{Code::kConfig, "sentencepiece: " + status.ToString()};
    ids.insert(ids.end(), made.begin(), made.end());
    return {};
  }

  Result<std::string> decode(std::span<const uint32_t> ids, bool show_special) const override {
    std::string words;
    std::vector<int> run;
    const auto flush = [&]() -> Result<void> {
      std::string part;
      const auto status = processor_->Decode(run, &part);
      if (!status.ok()) return Error{Code::kConfig, "sentencepiece: " + status.ToString()};
      words += part;
      run.clear();
      return {};
    };
    for (const uint32_t id : ids) {
      const int piece = static_cast<int>(id);
      if (id >= vocab_size_)
        return Error{Code::kConfig, text("token ", id, " is not below the vocabulary size ",
                                         vocab_size_, " of this tokenizer")};
      if (piece >= processor_->GetPieceSize()) {
        LOCKSTEP_RETURN_IF_ERROR(flush());
        for (const AddedToken& token : parts_.added)
          if (token.id == id && (show_special || !token.special)) words += token.content;
      } else if (processor_->IsControl(piece)) {
        LOCKSTEP_RETURN_IF_ERROR(flush());
        if (show_special) words += processor_->IdToPiece(piece);
      } else {
        run.push_back(piece);
      }
    }
    LOCKSTEP_RETURN_IF_ERROR(flush());
    return words;
  }

 private:
  const AddedToken* added_token(std::string_view name) const {
    for (const AddedToken& token : parts_.added)
      if (token.content == name) return &token;
    return nullptr;
  }

  // The library would make pieces of the name of an added token.
  Result<void> check_added(std::string_view text, SpecialNames names) const {
    if (added_.empty()) return {};
    std::vector<TextPart> found;
    added_.split(text, {0, static_cast<uint32_t>(text.size())}, names, found);
    for (const TextPart& part : found)
      if (part.token)
        return Error{
            Code::kConfig,
            lockstep::text("the text has the added token \"",
                           text.substr(part.range.begin, part.range.end - part.range.begin),
                           "\", which is no piece of the SentencePiece model: give the "
                           "tokenizer as tokenizer.json")};
    return {};
  }

  const std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;
  const Parts parts_;
  const AddedTokens added_;
  int64_t vocab_size_;
};

using Processor = sentencepiece::SentencePieceProcessor;

bool is_piece(const Processor& processor, const std::string& name, int id) {
  return id >= 0 && id < processor.GetPieceSize() && processor.IdToPiece(id) == name;
}

// The added tokens of `side` that are no pieces.
Result<std::vector<AddedToken>> added_tokens(const Processor& processor, const SideWords& side) {
  std::vector<AddedToken> added;
  for (const AddedToken& token : side.added_tokens) {
    if (is_piece(processor, token.content, static_cast<int>(token.id))) continue;
    if (token.content.empty() || int64_t{token.id} < processor.GetPieceSize() ||
        int64_t{token.id} >= int64_t{1} << 22)
      return Error{Code::kConfig,
                   text("the added token \"", token.content, "\" has the id ", token.id,
                        ", at which the SentencePiece model of ", processor.GetPieceSize(),
                        " pieces has another one, or which is too far")};
    added.push_back(token);
  }
  return added;
}

// The id of a token that a file names: an added one, or a piece.
Result<uint32_t> id_of_name(const Processor& processor, const std::vector<AddedToken>& added,
                            const SideWords::Name& name) {
  for (const AddedToken& token : added)
    if (token.content == name.token) return token.id;
  const int id = processor.PieceToId(name.token);
  if (is_piece(processor, name.token, id)) return static_cast<uint32_t>(id);
  return Error{Code::kConfig, text("\"", name.token, "\" of ", name.file,
                                   " is neither a piece of the SentencePiece model nor an added "
                                   "token")};
}

Result<SentencePieceTokenizer::Parts> parts_of(const Processor& processor,
                                               std::string_view contents, const SideWords& side) {
  SentencePieceTokenizer::Parts parts;
  LOCKSTEP_TRY(parts.added, added_tokens(processor, side));
  std::string changed;  // from what the model alone says
  if (!side.eos && processor.eos_id() < 0)
    return Error{Code::kConfig, "the SentencePiece model has no end-of-sentence token"};
  parts.end = static_cast<uint32_t>(processor.eos_id());
  if (side.eos) {
    LOCKSTEP_TRY(parts.end, id_of_name(processor, parts.added, *side.eos));
    if (static_cast<int>(parts.end) != processor.eos_id()) changed += text(" end ", parts.end);
  }
  if (side.add_bos.value_or(true) && processor.bos_id() >= 0) {
    parts.begin = {static_cast<uint32_t>(processor.bos_id())};
    if (side.bos) {
      LOCKSTEP_TRY(parts.begin[0], id_of_name(processor, parts.added, *side.bos));
    }
  }
  if (parts.begin.empty() != (processor.bos_id() < 0) ||
      (!parts.begin.empty() && static_cast<int>(parts.begin[0]) != processor.bos_id()))
    changed += parts.begin.empty() ? " no begin" : text(" begin ", parts.begin[0]);
  for (const AddedToken& token : parts.added)
    changed += text(" added ", token.id, " ", token.content.size(), token.content);
  parts.hash =
      hex64(changed.empty() ? xxh3_64(contents) : xxh3_64(hex64(xxh3_64(contents)) + changed));
  return parts;
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> parse_sentencepiece(std::string_view contents,
                                                       const SideWords& side) {
  auto processor = std::make_unique<sentencepiece::SentencePieceProcessor>();
  std::string problem;
  try {  // its dictionary throws at a model that is damaged
    const auto status = processor->LoadFromSerializedProto({contents.data(), contents.size()});
    if (!status.ok()) problem = status.ToString();
  } catch (const std::exception& e) {
    problem = e.what();
  }
  if (!problem.empty())
    return Error{Code::kConfig, "cannot parse this SentencePiece model: " + problem};
  auto parts = parts_of(*processor, contents, side);
  if (!parts.ok()) return parts.error();
  return std::unique_ptr<Tokenizer>(
      std::make_unique<SentencePieceTokenizer>(std::move(processor), std::move(parts).value()));
}

}  // namespace lockstep::data
