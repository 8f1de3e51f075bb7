#include "data/tokenizer/unigram_model.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/hash.h"
#include "base/text.h"
#include "data/tokenizer/bpe_model.h"
#include "data/tokenizer/unicode.h"
#include "data/tokenizer/vocabulary.h"

namespace lockstep::data {
namespace {

constexpr double kUnknownPenalty = 10;

// Of all tokens, each counted once.
size_t prefixes_of(const std::vector<std::string>& tokens) {
  std::vector<std::string_view> sorted(tokens.begin(), tokens.end());
  std::sort(sorted.begin(), sorted.end());
  size_t count = 0;
  for (size_t i = 0; i < sorted.size(); ++i) {
    const std::string_view last = i == 0 ? std::string_view() : sorted[i - 1];
    const size_t common = std::min(last.size(), sorted[i].size());
    const auto differ = std::mismatch(last.begin(), last.begin() + common, sorted[i].begin());
    count += sorted[i].size() - static_cast<size_t>(differ.first - last.begin());
  }
  return count;
}

}  // namespace

Result<UnigramModel> UnigramModel::create(Definition definition) {
  const size_t count = definition.tokens.size();
  if (static_cast<int64_t>(count) > kMaxVocab)
    return Error{Code::kConfig, text(count, " ids; at most ", kMaxVocab, " are allowed")};
  if (definition.scores.size() != count || definition.unknown >= count)
    return Error{Code::kConfig, text("unk_id ", definition.unknown, " is not one of ", count,
                                     " tokens with scores")};
  for (size_t id = 0; id < count; ++id)
    if (!std::isfinite(definition.scores[id]))
      return Error{Code::kConfig,
                   text("the score of token ", id, " is not finite: ", definition.scores[id])};
  UnigramModel model(std::move(definition));
  model.index_tokens();
  return model;
}

void UnigramModel::index_tokens() {
  double lowest = std::numeric_limits<double>::infinity();
  edges_.assign(std::bit_ceil(2 * prefixes_of(definition_.tokens) + 2), Edge{});
  uint32_t nodes = 1;
  for (size_t id = 0; id < definition_.tokens.size(); ++id) {
    ids_[definition_.tokens[id]] = static_cast<uint32_t>(id);
    lowest = std::min(lowest, definition_.scores[id]);
    index_token(static_cast<uint32_t>(id), nodes);
  }
  unknown_score_ = lowest - kUnknownPenalty;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const auto found = ids_.find(byte_token(byte));
    byte_ids_[byte] = found == ids_.end() ? kNone : found->second;
  }
}

void UnigramModel::index_token(uint32_t id, uint32_t& nodes) {
  uint32_t node = 0;
  Edge* edge = nullptr;
  for (const char c : definition_.tokens[id]) {
    const uint64_t key = uint64_t{node} << 8 | static_cast<uint8_t>(c);
    edge = &edges_[place_of(key)];
    if (edge->key != key) *edge = {key, nodes++, kNone};
    node = edge->node;
  }
  if (edge) edge->token = id;
}

size_t UnigramModel::place_of(uint64_t key) const {
  const uint64_t mask = edges_.size() - 1;
  uint64_t at = ((key * 0x9e3779b97f4a7c15ULL) >> 24) & mask;
  while (edges_[at].key != key && edges_[at].key != ~uint64_t{0}) at = (at + 1) & mask;
  return at;
}

void UnigramModel::find_best(std::string_view piece, std::vector<Best>& best) const {
  best.assign(piece.size() + 1, Best{});
  const auto offer = [&](size_t begin, size_t end, uint32_t token, double score) {
    Best& target = best[end];
    const double sum = score + best[begin].score;
    if (target.begin == kNone || sum > target.score)
      target = {sum, static_cast<uint32_t>(begin), token};
  };
  for (size_t begin = 0, size = 0; begin < piece.size(); begin += size) {
    size = code_point_at(piece.data() + begin, piece.data() + piece.size()).bytes;
    bool is_token = false;  // the character alone
    uint32_t node = 0;
    for (size_t end = begin; end < piece.size();) {
      const uint64_t key = uint64_t{node} << 8 | static_cast<uint8_t>(piece[end]);
      const Edge& edge = edges_[place_of(key)];
      if (edge.key != key) break;
      node = edge.node;
      ++end;
      if (edge.token == kNone) continue;
      offer(begin, end, edge.token, definition_.scores[edge.token]);
      is_token = is_token || end - begin == size;
    }
    if (!is_token) offer(begin, begin + size, definition_.unknown, unknown_score_);
  }
}

void UnigramModel::append_words(std::string_view words, std::vector<uint32_t>& ids) const {
  if (const auto found = ids_.find(words); found != ids_.end()) return ids.push_back(found->second);
  const bool has_bytes = std::all_of(words.begin(), words.end(), [&](char c) {
    return byte_ids_[static_cast<uint8_t>(c)] != kNone;
  });
  if (!definition_.byte_fallback || !has_bytes) return ids.push_back(definition_.unknown);
  for (const char c : words) ids.push_back(byte_ids_[static_cast<uint8_t>(c)]);
}

void UnigramModel::encode_piece(std::string_view piece, std::vector<uint32_t>& ids) const {
  thread_local std::vector<Best> best;
  thread_local std::vector<std::pair<uint32_t, uint32_t>> cuts;  // [begin, end), from the right
  find_best(piece, best);
  cuts.clear();
  bool was_unknown = false;
  for (auto end = static_cast<uint32_t>(piece.size()); end > 0; end = best[end].begin) {
    const bool unknown = best[end].token == definition_.unknown;
    if (unknown && was_unknown)
      cuts.back().first = best[end].begin;
    else
      cuts.emplace_back(best[end].begin, end);
    was_unknown = unknown;
  }
  for (size_t i = cuts.size(); i-- > 0;) {
    const auto [begin, end] = cuts[i];
    const Best& last = best[end];
    if (last.token != definition_.unknown)
      ids.push_back(last.token);
    else
      append_words(piece.substr(begin, end - begin), ids);
  }
}

uint64_t UnigramModel::hash() const {
  Xxh3Stream stream;
  hash_tokens(definition_.tokens, stream);
  stream.update(std::as_bytes(std::span(definition_.scores)));
  stream.update(std::as_bytes(std::span(&definition_.unknown, 1)));
  stream.update(std::as_bytes(std::span(&definition_.byte_fallback, 1)));
  return stream.digest();
}

}  // namespace lockstep::data
