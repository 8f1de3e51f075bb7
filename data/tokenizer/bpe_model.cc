#include "data/tokenizer/bpe_model.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <queue>
#include <unordered_map>

#include "base/hash.h"
#include "base/text.h"

namespace lockstep::data {

namespace {

constexpr size_t kShortPiece = 48;  // below, looking through all ranks beats a heap

uint64_t pair_of(uint32_t left, uint32_t right) { return uint64_t{left} << 32 | right; }
uint64_t place_of_pair(uint64_t pair) { return (pair * 0x9e3779b97f4a7c15ULL) >> 20; }

// A power of two, at least twice `count`.
size_t table_size(size_t count) { return std::bit_ceil(2 * count + 2); }

}  // namespace

Result<BpeModel> BpeModel::create(Definition definition) {
  BpeModel model(std::move(definition));
  const auto& tokens = model.definition_.token_bytes;
  if (static_cast<int64_t>(tokens.size()) > kMaxVocab)
    return Error{Code::kConfig, text(tokens.size(), " ids; at most ", kMaxVocab, " are allowed")};
  model.byte_ids_.fill(kNoToken);
  for (size_t id = tokens.size(); id-- > 0;)
    if (tokens[id].size() == 1)
      model.byte_ids_[static_cast<uint8_t>(tokens[id][0])] = static_cast<uint32_t>(id);
  for (size_t byte = 0; byte < 256; ++byte)
    if (model.byte_ids_[byte] == kNoToken && !model.definition_.from_symbols)
      return Error{Code::kConfig, text("the vocabulary has no token for byte ", byte,
                                       ", so text with it would be lost")};
  for (const Merge& merge : model.definition_.merges)
    if (std::max({merge.left, merge.right, merge.joined}) >= tokens.size())
      return Error{Code::kConfig, "a merge names an id outside the vocabulary"};
  model.index_merges();
  if (model.definition_.whole_pieces_first) model.index_whole_pieces();
  return model;
}

std::vector<Merge> BpeModel::merges_of_ranks(const std::vector<std::string>& token_bytes) {
  std::unordered_map<std::string_view, uint32_t> id_of;
  for (size_t id = 0; id < token_bytes.size(); ++id)
    if (!token_bytes[id].empty()) id_of.emplace(token_bytes[id], static_cast<uint32_t>(id));
  std::vector<Merge> merges;
  for (size_t id = 0; id < token_bytes.size(); ++id) {
    const std::string_view token = token_bytes[id];
    for (size_t cut = 1; cut < token.size(); ++cut) {
      const auto left = id_of.find(token.substr(0, cut));
      if (left == id_of.end()) continue;
      const auto right = id_of.find(token.substr(cut));
      if (right == id_of.end()) continue;
      merges.push_back({left->second, right->second, static_cast<uint32_t>(id)});
    }
  }
  return merges;
}

void BpeModel::index_merges() {
  slots_.assign(table_size(definition_.merges.size()), Slot{});
  slot_mask_ = slots_.size() - 1;
  for (size_t rank = 0; rank < definition_.merges.size(); ++rank) {
    const Merge& merge = definition_.merges[rank];
    const uint64_t pair = pair_of(merge.left, merge.right);
    uint64_t at = place_of_pair(pair) & slot_mask_;
    while (slots_[at].rank != kNoToken && slots_[at].pair != pair) at = (at + 1) & slot_mask_;
    // Of a pair that is listed twice the later place counts, as in `tokenizers`.
    slots_[at] = {pair, static_cast<uint32_t>(rank), merge.joined};
  }
}

void BpeModel::index_whole_pieces() {
  whole_.assign(table_size(definition_.token_bytes.size()), kNoToken);
  whole_mask_ = whole_.size() - 1;
  for (size_t id = 0; id < definition_.token_bytes.size(); ++id) {
    const std::string& token = definition_.token_bytes[id];
    if (token.empty()) continue;
    uint64_t at = xxh3_64(token) & whole_mask_;
    // Of equal tokens the first counts.
    while (whole_[at] != kNoToken && definition_.token_bytes[whole_[at]] != token)
      at = (at + 1) & whole_mask_;
    if (whole_[at] == kNoToken) whole_[at] = static_cast<uint32_t>(id);
  }
}

const BpeModel::Slot& BpeModel::find(uint32_t left, uint32_t right) const {
  const uint64_t pair = pair_of(left, right);
  uint64_t at = place_of_pair(pair) & slot_mask_;
  while (slots_[at].pair != pair && slots_[at].rank != kNoToken) at = (at + 1) & slot_mask_;
  return slots_[at];
}

uint32_t BpeModel::find_whole(std::string_view piece) const {
  uint64_t at = xxh3_64(piece) & whole_mask_;
  while (whole_[at] != kNoToken && definition_.token_bytes[whole_[at]] != piece)
    at = (at + 1) & whole_mask_;
  return whole_[at];
}

size_t BpeModel::longest_search() const {
  size_t longest = 0, run = 0;
  for (size_t at = 0; at < 2 * whole_.size(); ++at) {  // twice: a run may go over the table's end
    run = whole_[at & whole_mask_] == kNoToken ? 0 : run + 1;
    longest = std::max(longest, run + 1);
  }
  return longest;
}

void BpeModel::encode_piece(std::string_view piece, std::vector<uint32_t>& ids) const {
  if (definition_.whole_pieces_first)
    if (const uint32_t id = find_whole(piece); id != kNoToken) return ids.push_back(id);
  if (piece.size() <= kShortPiece) {
    merge_short(piece, ids);
  } else {
    merge_long(piece, ids);
  }
}

void BpeModel::merge_short(std::string_view piece, std::vector<uint32_t>& ids) const {
  std::array<uint32_t, kShortPiece> token;
  std::array<const Slot*, kShortPiece> pair;  // [i]: of token[i] and token[i + 1]
  size_t count = piece.size();
  for (size_t i = 0; i < count; ++i) token[i] = byte_ids_[static_cast<uint8_t>(piece[i])];
  for (size_t i = 0; i + 1 < count; ++i) pair[i] = &find(token[i], token[i + 1]);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i)
      if (pair[i]->rank < pair[best]->rank) best = i;
    if (pair[best]->rank == kNoToken) break;
    token[best] = pair[best]->joined;
    --count;
    for (size_t i = best + 1; i < count; ++i) {
      token[i] = token[i + 1];
      pair[i - 1] = pair[i];
    }
    if (best + 1 < count) pair[best] = &find(token[best], token[best + 1]);
    if (best > 0) pair[best - 1] = &find(token[best - 1], token[best]);
  }
  ids.insert(ids.end(), token.begin(), token.begin() + static_cast<ptrdiff_t>(count));
}

void BpeModel::merge_long(std::string_view piece, std::vector<uint32_t>& ids) const {
  std::vector<uint32_t> symbols(piece.size());
  for (size_t i = 0; i < piece.size(); ++i) symbols[i] = byte_ids_[static_cast<uint8_t>(piece[i])];
  merge_symbols(symbols, ids);
}

// The same with a heap and a linked list: n log n for pieces of any length.
void BpeModel::merge_symbols(std::span<const uint32_t> given, std::vector<uint32_t>& ids) const {
  constexpr uint32_t kNone = 0xffffffff;
  struct Symbol {
    uint32_t token, previous, next;
  };
  struct Candidate {
    uint32_t rank, at, left, right, joined;
    bool operator<(const Candidate& other) const {  // the heap's top is the largest
      return rank != other.rank ? rank > other.rank : at > other.at;
    }
  };
  const auto count = static_cast<uint32_t>(given.size());
  if (count == 0) return;
  std::vector<Symbol> symbols(count);
  for (uint32_t i = 0; i < count; ++i)
    symbols[i] = {given[i], i == 0 ? kNone : i - 1, i + 1 == count ? kNone : i + 1};
  std::priority_queue<Candidate> queue;
  const auto propose = [&](uint32_t at) {
    if (at == kNone || symbols[at].next == kNone) return;
    const uint32_t left = symbols[at].token, right = symbols[symbols[at].next].token;
    const Slot& slot = find(left, right);
    if (slot.rank != kNoToken) queue.push({slot.rank, at, left, right, slot.joined});
  };
  for (uint32_t i = 0; i + 1 < count; ++i) propose(i);
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& symbol = symbols[best.at];
    // Stale when a merge took either half since.
    if (symbol.token != best.left || symbol.next == kNone ||
        symbols[symbol.next].token != best.right)
      continue;
    const uint32_t gone = symbol.next;
    symbol.token = best.joined;
    symbol.next = symbols[gone].next;
    symbols[gone].token = kNoToken;
    if (symbol.next != kNone) symbols[symbol.next].previous = best.at;
    propose(symbol.previous);
    propose(best.at);
  }
  for (uint32_t at = 0; at != kNone; at = symbols[at].next) ids.push_back(symbols[at].token);
}

void hash_tokens(const std::vector<std::string>& tokens, Xxh3Stream& stream) {
  for (const std::string& token : tokens) {
    const uint64_t size = token.size();
    stream.update(std::as_bytes(std::span(&size, 1)));
    stream.update(std::as_bytes(std::span(token)));
  }
}

uint64_t BpeModel::hash() const {
  Xxh3Stream stream;
  hash_tokens(definition_.token_bytes, stream);
  stream.update(std::as_bytes(std::span(definition_.merges)));
  stream.update(std::as_bytes(std::span(&definition_.whole_pieces_first, 1)));
  return stream.digest();
}

PieceCache::PieceCache() : entries_(kEntries) {}

void PieceCache::encode(const BpeModel& model, std::string_view text, uint32_t begin, uint32_t end,
                        std::vector<uint32_t>& ids) {
  const size_t size = end - begin;
  const std::string_view piece = text.substr(begin, size);
  if (size > kMaxPieceBytes) return model.encode_piece(piece, ids);
  std::array<uint64_t, 3> key{};
  if (text.size() - begin >= sizeof(key)) {
    std::memcpy(key.data(), piece.data(), sizeof(key));
    const auto keep = [](size_t bytes) {  // the low bytes of a word, little endian
      return bytes >= 8 ? ~uint64_t{0} : (uint64_t{1} << (8 * bytes)) - 1;
    };
    key[0] &= keep(size);
    key[1] &= size > 8 ? keep(size - 8) : 0;
    key[2] &= size > 16 ? keep(size - 16) : 0;
  } else {
    std::memcpy(key.data(), piece.data(), size);
  }
  key[2] |= uint64_t{size} << 56;
  const uint64_t mixed =
      mix64(key[0] + mix64(key[1] + 0x9e3779b97f4a7c15ULL * (key[2] >> 3 | key[2] << 61)));
  Entry& entry = entries_[mixed % kEntries];
  if (entry.key == key) {
    const size_t first = ids.size();
    ids.resize(first + entry.count);
    std::copy_n(entry.ids.begin(), entry.count, ids.begin() + static_cast<ptrdiff_t>(first));
    return;
  }
  const size_t first = ids.size();
  model.encode_piece(piece, ids);
  const size_t count = ids.size() - first;
  if (count > kMaxIds) return;
  entry.key = key;
  entry.count = static_cast<uint32_t>(count);
  std::copy_n(ids.begin() + static_cast<ptrdiff_t>(first), count, entry.ids.begin());
}

}  // namespace lockstep::data
