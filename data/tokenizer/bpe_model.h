// Byte-pair encoding of one piece: its bytes become ids, then the pair with the lowest rank is
// merged, leftmost first, until no pair has a rank. Immutable after create(): thread-safe.
//
// The reference libraries agree with this on every piece: `tokenizers` merges by the position of a
// pair in its list; `tiktoken` by the id of the joined bytes, which are here one pair for each way
// to cut a token in two.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/result.h"

namespace lockstep::data {

inline constexpr uint32_t kNoToken = 0xffffffff;
inline constexpr int64_t kMaxVocab = int64_t{1} << 22;

struct Merge {
  uint32_t left, right, joined;
};

class BpeModel {
 public:
  struct Definition {
    std::vector<std::string> token_bytes;  // by id; empty: no merge makes this id
    std::vector<Merge> merges;             // by rank
    bool whole_pieces_first = false;       // a piece that is a token is that token, merges or not
    bool from_symbols = false;  // merge_symbols alone is called: not every byte needs a token
  };
  // Errors: kConfig, a byte without a token, a merge of an id that is none.
  static Result<BpeModel> create(Definition definition);
  // The merges that make `token_bytes` what `tiktoken` makes of it, where the id is the rank.
  static std::vector<Merge> merges_of_ranks(const std::vector<std::string>& token_bytes);

  // Appends the ids of `piece`.
  void encode_piece(std::string_view piece, std::vector<uint32_t>& ids) const;
  // Appends what `symbols`, which are ids, become by merges.
  void merge_symbols(std::span<const uint32_t> symbols, std::vector<uint32_t>& ids) const;
  bool whole_pieces_first() const { return definition_.whole_pieces_first; }
  const std::string& token_bytes(uint32_t id) const { return definition_.token_bytes[id]; }
  size_t size() const { return definition_.token_bytes.size(); }
  // The most places that a search for a whole piece looks at, counted over the table.
  size_t longest_search() const;
  // Of everything above.
  uint64_t hash() const;

 private:
  struct Slot {
    uint64_t pair = ~uint64_t{0};
    uint32_t rank = kNoToken, joined = 0;
  };
  explicit BpeModel(Definition definition) : definition_(std::move(definition)) {}
  void index_merges();
  void index_whole_pieces();
  const Slot& find(uint32_t left, uint32_t right) const;
  uint32_t find_whole(std::string_view piece) const;
  void merge_short(std::string_view piece, std::vector<uint32_t>& ids) const;
  void merge_long(std::string_view piece, std::vector<uint32_t>& ids) const;

  Definition definition_;
  std::array<uint32_t, 256> byte_ids_{};
  std::vector<Slot> slots_;  // open addressing, a power of two, at most half full
  uint64_t slot_mask_ = 0;
  std::vector<uint32_t> whole_;  // ids by hash of their bytes, the same way
  uint64_t whole_mask_ = 0;
};

// The ids of pieces seen before. A piece has one place; a newcomer takes it over, so memory is
// fixed. One thread at a time.
class PieceCache {
 public:
  PieceCache();
  // As model.encode_piece(text.substr(begin, end - begin)). Always with the same model.
  void encode(const BpeModel& model, std::string_view text, uint32_t begin, uint32_t end,
              std::vector<uint32_t>& ids);

 private:
  static constexpr size_t kEntries = size_t{1} << 16;
  static constexpr size_t kMaxPieceBytes = 23, kMaxIds = 9;
  struct alignas(64) Entry {
    std::array<uint64_t, 3> key{};  // the bytes, zeros, and in the last one their number
    uint32_t count = 0;
    std::array<uint32_t, kMaxIds> ids{};
  };
  static_assert(sizeof(Entry) == 64);
  std::vector<Entry> entries_;
};

// Hashes each token of a model with its length, so that "a", "bc" and "ab", "c" differ.
void hash_tokens(const std::vector<std::string>& tokens, Xxh3Stream& stream);

}  // namespace lockstep::data
