// SentencePiece's unigram model of one piece: of all ways to cut it into tokens, the one with the
// largest sum of scores. As `tokenizers` does it, to the last bit of a sum and at equal sums: sums
// are float64 from the left, and of equal ones the first that was found (the longest last token).
// A character that no token is costs the lowest score less 10. Neighbours that are unknown are
// one; what they are together becomes bytes, <0x00> to <0xFF>, or the unknown token.
// Immutable after create(): thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"

namespace lockstep::data {

class UnigramModel {
 public:
  struct Definition {
    std::vector<std::string> tokens;  // by id; of equal ones the last counts
    std::vector<double> scores;       // logarithms of probabilities, by id
    uint32_t unknown = 0;
    bool byte_fallback = false;
  };
  // Errors: kConfig: an id that is none, too many tokens, a score that is no number.
  static Result<UnigramModel> create(Definition definition);

  // Appends the ids of `piece`.
  void encode_piece(std::string_view piece, std::vector<uint32_t>& ids) const;
  // Of everything above.
  uint64_t hash() const;

 private:
  static constexpr uint32_t kNone = 0xffffffff;
  // From a node, by a byte, to another node, with the id of the token that ends there.
  struct Edge {
    uint64_t key = ~uint64_t{0};
    uint32_t node = 0, token = kNone;
  };
  // The best way to a place of the piece: its last token and where that begins.
  struct Best {
    double score = 0;
    uint32_t begin = kNone, token = 0;
  };
  explicit UnigramModel(Definition definition) : definition_(std::move(definition)) {}
  void index_tokens();
  void index_token(uint32_t id, uint32_t& nodes);
  size_t place_of(uint64_t key) const;
  void find_best(std::string_view piece, std::vector<Best>& best) const;
  void append_words(std::string_view words, std::vector<uint32_t>& ids) const;

  Definition definition_;
  std::unordered_map<std::string_view, uint32_t> ids_;  // of definition_.tokens
  std::array<uint32_t, 256> byte_ids_{};
  std::vector<Edge> edges_;  // open addressing, a power of two, at most half full
  double unknown_score_ = 0;
};

}  // namespace lockstep::data
