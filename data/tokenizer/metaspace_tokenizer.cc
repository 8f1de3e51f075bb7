#include "data/tokenizer/metaspace_tokenizer.h"

#include <algorithm>
#include <array>
#include <limits>
#include <unordered_map>

#include "base/check.h"
#include "base/hash.h"
#include "base/text.h"
#include "data/tokenizer/unicode.h"
#include "data/tokenizer/vocabulary.h"

namespace lockstep::data {
namespace {

constexpr std::string_view kMetaspaceText = kMetaspace;

// The bytes of the character at `at`; 1 where there is none.
size_t character_bytes(std::string_view text, size_t at) {
  const auto first = static_cast<uint8_t>(text[at]);
  const size_t size = first < 0x80 ? 1 : first < 0xc2 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  if (first >= 0xf5 || at + size > text.size()) return 1;
  for (size_t i = 1; i < size; ++i)
    if ((static_cast<uint8_t>(text[at + i]) & 0xc0) != 0x80) return 1;
  return size;
}

void replace_spaces(std::string_view words, std::string& out) {
  for (const char c : words)
    if (c == ' ')
      out += kMetaspaceText;
    else
      out += c;
}

// What a part of a text is when added tokens are looked for a second time.
Result<void> normalize(const MetaspaceParts& parts, std::string_view words, std::string& out) {
  out.clear();
  if (parts.normalizer) {
    out = words;
    return parts.normalizer->apply(out);
  }
  if (words.empty()) return {};
  if (parts.prepends == Prepends::kEachPart) out += kMetaspaceText;
  if (parts.replaces_first)
    replace_spaces(words, out);
  else
    out += words;
  return {};
}

Result<std::vector<AddedToken>> select_added(const MetaspaceParts& parts, bool normalized) {
  std::vector<AddedToken> selected;
  for (AddedToken token : parts.bpe.added_tokens) {
    if (token.normalized != normalized) continue;
    std::string content;
    LOCKSTEP_RETURN_IF_ERROR(normalize(parts, token.content, content));
    if (normalized) token.content = content;
    selected.push_back(std::move(token));
  }
  return selected;
}

class MetaspaceTokenizer final : public Tokenizer {
 public:
  struct Models {
    BpeModel bpe;  // of a unigram model its tokens alone
    std::optional<UnigramModel> unigram;
    AddedTokens raw_tokens, normalized_tokens;
  };
  MetaspaceTokenizer(MetaspaceParts parts, Models models)
      : parts_(std::move(parts)),
        model_(std::move(models.bpe)),
        unigram_(std::move(models.unigram)),
        raw_tokens_(std::move(models.raw_tokens)),
        normalized_tokens_(std::move(models.normalized_tokens)),
        vocab_size_(static_cast<int64_t>(model_.size())) {
    byte_ids_.fill(kNoToken);
    for (size_t id = model_.size(); id-- > 0;) {
      const std::string& token = model_.token_bytes(static_cast<uint32_t>(id));
      if (!token.empty()) ids_[token] = static_cast<uint32_t>(id);
    }
    for (unsigned byte = 0; byte < 256; ++byte)
      if (const auto found = ids_.find(byte_token(byte)); found != ids_.end())
        byte_ids_[byte] = found->second;
    for (const auto& [token, id] : ids_)
      if (token.size() <= kLongest && character_bytes(token, 0) == token.size())
        characters_[key_of(token)] = id;
    for (const AddedToken& token : parts_.bpe.added_tokens) {
      added_by_id_.emplace(token.id, &token);
      id_by_name_.emplace(token.content, token.id);
      vocab_size_ = std::max(vocab_size_, int64_t{token.id} + 1);
    }
    hash_ = hex64(hash_of_parts());
  }

  std::string name() const override { return parts_.bpe.name; }
  std::string hash() const override { return hash_; }
  int64_t vocab_size() const override { return vocab_size_; }
  uint32_t end_of_document() const override { return parts_.bpe.end_of_document; }
  std::span<const uint32_t> begin_of_document() const override {
    return parts_.bpe.begin_of_document;
  }
  std::optional<uint32_t> special_id(std::string_view wanted) const override {
    const auto found = id_by_name_.find(std::string(wanted));
    if (found == id_by_name_.end()) return std::nullopt;
    return found->second;
  }

  Result<void> encode(std::string_view text, std::vector<uint32_t>& ids,
                      SpecialNames names) const override {
    LOCKSTEP_CHECK(text.size() < std::numeric_limits<uint32_t>::max() / 4, text.size());
    std::vector<TextPart> raw, inner;
    raw_tokens_.split(text, {0, static_cast<uint32_t>(text.size())}, names, raw);
    std::string normalized;
    for (const TextPart& part : raw) {
      if (part.token) {
        ids.push_back(*part.token);
        continue;
      }
      LOCKSTEP_RETURN_IF_ERROR(normalize(
          parts_, text.substr(part.range.begin, part.range.end - part.range.begin), normalized));
      inner.clear();
      normalized_tokens_.split(normalized, {0, static_cast<uint32_t>(normalized.size())}, names,
                               inner);
      for (const TextPart& each : inner) {
        if (each.token)
          ids.push_back(*each.token);
        else
          encode_words(std::string_view(normalized)
                           .substr(each.range.begin, each.range.end - each.range.begin),
                       part.range.begin + each.range.begin == 0, ids);
      }
    }
    return {};
  }

  Result<std::string> decode(std::span<const uint32_t> ids, bool show_special) const override {
    LOCKSTEP_TRY(std::string words,
                 join_tokens(ids, vocab_size_, added_by_id_, show_special, model_.size(),
                             [this](uint32_t id, std::string& out) { append_words(id, out); }));
    if (parts_.strips_begin && words.starts_with(' ')) words.erase(0, 1);
    return words;
  }

 private:
  static constexpr size_t kLongest = 4;  // bytes of a character
  static uint32_t key_of(std::string_view character) {
    uint32_t key = 0;
    for (const char c : character) key = key << 8 | static_cast<uint8_t>(c);
    return key;
  }

  void encode_words(std::string_view words, bool at_beginning, std::vector<uint32_t>& ids) const {
    if (!parts_.splits_words) return encode_part(words, at_beginning, ids);
    const char* const end = words.data() + words.size();
    for (const char* at = words.data(); at < end;) {
      const char* begin = at;
      CodePoint point;
      while (at < end && !((point = code_point_at(at, end)).classes & kSpace)) at += point.bytes;
      if (at > begin)
        encode_part({begin, static_cast<size_t>(at - begin)}, at_beginning && begin == words.data(),
                    ids);
      if (at < end) at += point.bytes;
    }
  }

  void encode_part(std::string_view words, bool at_beginning, std::vector<uint32_t>& ids) const {
    std::string spaced;
    const bool prepends = parts_.prepends == Prepends::kWhereNone ||
                          (parts_.prepends == Prepends::kBeginning && at_beginning);
    const bool spaced_already = parts_.replaces_first || parts_.leaves_spaces;
    if (!spaced_already || prepends) {
      if (prepends && !words.starts_with(kMetaspaceText) && !words.starts_with(' '))
        spaced += kMetaspaceText;
      if (spaced_already)
        spaced += words;
      else
        replace_spaces(words, spaced);
      words = spaced;
    }
    if (!parts_.splits) return encode_piece(words, ids);
    for (size_t begin = 0; begin < words.size();) {
      const size_t next = words.find(kMetaspaceText, begin + 1);
      const size_t end = next == words.npos ? words.size() : next;
      encode_piece(words.substr(begin, end - begin), ids);
      begin = end;
    }
  }

  void encode_piece(std::string_view piece, std::vector<uint32_t>& ids) const {
    if (piece.empty()) return;
    if (unigram_) return unigram_->encode_piece(piece, ids);
    if (model_.whole_pieces_first())
      if (const auto whole = ids_.find(std::string(piece)); whole != ids_.end())
        return ids.push_back(whole->second);
    std::vector<uint32_t> symbols;
    symbols.reserve(piece.size());
    bool unknown = false;  // one waits for what comes after it
    for (size_t at = 0, size = 0; at < piece.size(); at += size) {
      size = character_bytes(piece, at);
      const std::string_view character = piece.substr(at, size);
      const auto known = characters_.find(key_of(character));
      if (known != characters_.end()) {
        if (unknown) symbols.push_back(*parts_.unknown);
        unknown = false;
        symbols.push_back(known->second);
      } else if (has_bytes(character)) {
        for (const char c : character) symbols.push_back(byte_ids_[static_cast<uint8_t>(c)]);
      } else if (parts_.unknown) {
        if (unknown && !parts_.fuses_unknown) symbols.push_back(*parts_.unknown);
        unknown = true;
      }
    }
    if (unknown) symbols.push_back(*parts_.unknown);
    model_.merge_symbols(symbols, ids);
  }

  bool has_bytes(std::string_view character) const {
    return parts_.byte_fallback && std::all_of(character.begin(), character.end(), [&](char c) {
             return byte_ids_[static_cast<uint8_t>(c)] != kNoToken;
           });
  }

  void append_words(uint32_t id, std::string& words) const {
    const std::string& token = model_.token_bytes(id);
    if (parts_.byte_fallback && token.size() == 6 && token.starts_with("<0x")) {
      const auto byte = std::find(byte_ids_.begin(), byte_ids_.end(), id);
      if (byte != byte_ids_.end()) {
        words += static_cast<char>(byte - byte_ids_.begin());
        return;
      }
    }
    for (size_t at = 0; at < token.size();) {
      const bool space = std::string_view(token).substr(at).starts_with(kMetaspaceText);
      words += space ? ' ' : token[at];
      at += space ? kMetaspaceText.size() : 1;
    }
  }

  uint64_t hash_of_parts() const {
    std::string flat =
        text("metaspace 1\n", hex64(model_.hash()), " ", static_cast<int>(parts_.prepends),
             parts_.replaces_first, parts_.splits, parts_.byte_fallback, parts_.fuses_unknown,
             " unknown ", parts_.unknown.value_or(kNoToken), " end ", parts_.bpe.end_of_document);
    for (const uint32_t id : parts_.bpe.begin_of_document) flat += text(" begin ", id);
    for (const AddedToken& token : parts_.bpe.added_tokens)
      flat += text("\n", token.id, token.special, token.normalized, token.single_word,
                   token.strips_left, token.strips_right, token.content.size(), token.content);
    if (unigram_) flat += text("\nunigram ", hex64(unigram_->hash()));
    if (parts_.normalizer) flat += text("\nnormalizer ", parts_.normalizer_definition);
    if (parts_.splits_words) flat += "\nsplits words";
    return xxh3_64(flat);
  }

  const MetaspaceParts parts_;
  const BpeModel model_;
  const std::optional<UnigramModel> unigram_;
  const AddedTokens raw_tokens_, normalized_tokens_;
  int64_t vocab_size_;
  std::string hash_;
  std::array<uint32_t, 256> byte_ids_{};
  std::unordered_map<std::string, uint32_t> ids_;
  std::unordered_map<uint32_t, uint32_t> characters_;  // by key_of
  AddedById added_by_id_;
  std::unordered_map<std::string, uint32_t> id_by_name_;
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> make_metaspace_tokenizer(MetaspaceParts parts) {
  for (const AddedToken& token : parts.bpe.added_tokens)
    if (int64_t{token.id} >= kMaxVocab || token.content.empty())
      return Error{Code::kConfig, text("the added token \"", token.content, "\" with id ", token.id,
                                       " is empty, or its id is not below ", kMaxVocab)};
  std::optional<UnigramModel> unigram;
  if (parts.unigram) {
    LOCKSTEP_TRY(unigram, UnigramModel::create(*std::move(parts.unigram)));
    parts.unigram.reset();
  }
  LOCKSTEP_TRY(std::vector<AddedToken> raw, select_added(parts, false));
  LOCKSTEP_TRY(std::vector<AddedToken> normalized, select_added(parts, true));
  parts.bpe.model.from_symbols = true;
  LOCKSTEP_TRY(BpeModel model, BpeModel::create(std::move(parts.bpe.model)));
  return std::unique_ptr<Tokenizer>(std::make_unique<MetaspaceTokenizer>(
      std::move(parts),
      MetaspaceTokenizer::Models{std::move(model), std::move(unigram), AddedTokens(std::move(raw)),
                                 AddedTokens(std::move(normalized))}));
}

}  // namespace lockstep::data
