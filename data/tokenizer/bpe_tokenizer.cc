#include "data/tokenizer/bpe_tokenizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <unordered_map>

#include "base/check.h"
#include "base/hash.h"
#include "base/text.h"
#include "data/tokenizer/vocabulary.h"

namespace lockstep::data {

namespace {

// What one call of encode needs, kept for the next one.
struct Scratch {
  PieceCache cache;
  std::vector<TextPart> parts, normalized_parts;
  std::vector<Piece> pieces;
  std::string composed, prefixed;
  SplitBudget budget{0};
};

class ScratchPool {
 public:
  std::unique_ptr<Scratch> take() {
    std::lock_guard lock(mutex_);
    if (free_.empty()) return std::make_unique<Scratch>();
    std::unique_ptr<Scratch> scratch = std::move(free_.back());
    free_.pop_back();
    return scratch;
  }
  void give_back(std::unique_ptr<Scratch> scratch) {
    std::lock_guard lock(mutex_);
    free_.push_back(std::move(scratch));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Scratch>> free_;
};

std::vector<AddedToken> select(const BpeParts& parts, bool normalized) {
  std::vector<AddedToken> selected;
  for (AddedToken token : parts.added_tokens) {
    if (token.normalized != normalized || !parts.finds_added_tokens) continue;
    std::string composed;
    if (normalized && parts.composes && compose(token.content, composed)) token.content = composed;
    selected.push_back(std::move(token));
  }
  return selected;
}

uint64_t hash_of(const BpeParts& parts, const BpeModel& model) {
  std::string flat =
      text("bpe 1\n", hex64(model.hash()), parts.pre_tokenizer->description(), "\n", parts.composes,
           parts.adds_prefix_space, parts.finds_added_tokens, " end ", parts.end_of_document);
  for (const uint32_t id : parts.begin_of_document) flat += text(" begin ", id);
  for (const AddedToken& token : parts.added_tokens)
    flat += text("\n", token.id, token.special, token.normalized, token.single_word,
                 token.strips_left, token.strips_right, token.content.size(), token.content);
  return xxh3_64(flat);
}

class BpeTokenizer final : public Tokenizer {
 public:
  BpeTokenizer(BpeParts parts, BpeModel model)
      : parts_(std::move(parts)),
        model_(std::move(model)),
        raw_tokens_(select(parts_, false)),
        normalized_tokens_(select(parts_, true)),
        hash_(hex64(hash_of(parts_, model_))),
        vocab_size_(static_cast<int64_t>(model_.size())) {
    for (const AddedToken& token : parts_.added_tokens) {
      added_by_id_.emplace(token.id, &token);
      id_by_name_.emplace(token.content, token.id);
      vocab_size_ = std::max(vocab_size_, int64_t{token.id} + 1);
    }
  }

  std::string name() const override { return parts_.name; }
  std::string hash() const override { return hash_; }
  int64_t vocab_size() const override { return vocab_size_; }
  uint32_t end_of_document() const override { return parts_.end_of_document; }
  std::span<const uint32_t> begin_of_document() const override { return parts_.begin_of_document; }
  std::optional<uint32_t> special_id(std::string_view wanted) const override {
    const auto found = id_by_name_.find(std::string(wanted));
    if (found == id_by_name_.end()) return std::nullopt;
    return found->second;
  }

  Result<void> encode(std::string_view text, std::vector<uint32_t>& ids,
                      SpecialNames names) const override {
    LOCKSTEP_CHECK(text.size() < std::numeric_limits<uint32_t>::max(), text.size());
    std::unique_ptr<Scratch> scratch = pool_.take();
    const Result<void> done = encode_with(*scratch, text, ids, names);
    pool_.give_back(std::move(scratch));
    return done;
  }

  Result<std::string> decode(std::span<const uint32_t> ids, bool show_special) const override {
    return join_tokens(
        ids, vocab_size_, added_by_id_, show_special, model_.size(),
        [this](uint32_t id, std::string& bytes) { bytes += model_.token_bytes(id); });
  }

 private:
  Result<void> encode_with(Scratch& scratch, std::string_view text, std::vector<uint32_t>& ids,
                           SpecialNames names) const {
    scratch.budget = SplitBudget(text.size());
    scratch.parts.clear();
    raw_tokens_.split(text, {0, static_cast<uint32_t>(text.size())}, names, scratch.parts);
    for (const TextPart& part : scratch.parts) {
      if (part.token) {
        ids.push_back(*part.token);
        continue;
      }
      std::string_view between = text.substr(part.range.begin, part.range.end - part.range.begin);
      if (parts_.composes && compose(between, scratch.composed)) between = scratch.composed;
      LOCKSTEP_RETURN_IF_ERROR(encode_normalized(scratch, between, ids, names));
    }
    return {};
  }

  Result<void> encode_normalized(Scratch& scratch, std::string_view text,
                                 std::vector<uint32_t>& ids, SpecialNames names) const {
    const Piece whole{0, static_cast<uint32_t>(text.size())};
    if (normalized_tokens_.empty()) return encode_pieces(scratch, text, whole, ids);
    scratch.normalized_parts.clear();
    normalized_tokens_.split(text, whole, names, scratch.normalized_parts);
    for (const TextPart& part : scratch.normalized_parts) {
      if (part.token) {
        ids.push_back(*part.token);
      } else {
        LOCKSTEP_RETURN_IF_ERROR(encode_pieces(scratch, text, part.range, ids));
      }
    }
    return {};
  }

  Result<void> encode_pieces(Scratch& scratch, std::string_view text, Piece range,
                             std::vector<uint32_t>& ids) const {
    if (parts_.adds_prefix_space && range.begin < range.end && text[range.begin] != ' ') {
      scratch.prefixed = " ";
      scratch.prefixed += text.substr(range.begin, range.end - range.begin);
      text = scratch.prefixed;
      range = {0, static_cast<uint32_t>(text.size())};
    }
    scratch.pieces.clear();
    LOCKSTEP_RETURN_IF_ERROR(
        parts_.pre_tokenizer->split(text, range, scratch.budget, scratch.pieces));
    for (const Piece& piece : scratch.pieces)
      scratch.cache.encode(model_, text, piece.begin, piece.end, ids);
    return {};
  }

  const BpeParts parts_;
  const BpeModel model_;
  const AddedTokens raw_tokens_, normalized_tokens_;
  const std::string hash_;
  int64_t vocab_size_;
  AddedById added_by_id_;
  std::unordered_map<std::string, uint32_t> id_by_name_;
  mutable ScratchPool pool_;
};

}  // namespace

bool compose(std::string_view text, std::string& composed) {
  // Nothing below U+0300 composes or changes.
  if (std::all_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) < 0xcc; }))
    return false;
  utf8proc_uint8_t* made = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &made,
                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  if (size < 0) return false;
  const std::string_view result(reinterpret_cast<const char*>(made), static_cast<size_t>(size));
  const bool changed = result != text;
  if (changed) composed = result;
  std::free(made);
  return changed;
}

Result<std::unique_ptr<Tokenizer>> make_bpe_tokenizer(BpeParts parts) {
  for (const AddedToken& token : parts.added_tokens) {
    if (int64_t{token.id} >= kMaxVocab)
      return Error{Code::kConfig,
                   text("id ", token.id, " of \"", token.content, "\" is not below ", kMaxVocab)};
    if (token.content.empty())
      return Error{Code::kConfig, text("the added token with id ", token.id, " is empty")};
  }
  LOCKSTEP_TRY(BpeModel model, BpeModel::create(std::move(parts.model)));
  return std::unique_ptr<Tokenizer>(
      std::make_unique<BpeTokenizer>(std::move(parts), std::move(model)));
}

}  // namespace lockstep::data
