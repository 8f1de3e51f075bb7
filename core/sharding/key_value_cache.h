// Keys and values of the tokens that sequences have so far, by layer: what generation keeps, so
// that a new token costs one row of each product. A forward of new tokens goes through the same
// stages as one of whole sequences (SlotInput); each block's attention asks the cache in place of
// Kernels::attention. On the CPU every row is worked on by itself, in fp32 from queries to the
// result: its bits depend on its sequence alone, not on what else is in the forward.
// Legend: R rows of a forward, H query heads, K key heads, E head_dim.
// Memory: 2 K E elements of the compute dtype a layer and token. A sequence's memory grows with it,
// by half and by kStep tokens at least, and never beyond what it may hold.
// Thread: the training thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <span>
#include <vector>

#include "core/kernels/attention_shape.h"

namespace lockstep::core {

// Consecutive rows of a forward: the next tokens of a sequence.
struct NewTokens {
  int64_t sequence, count;
};

class KeyValueCache {
 public:
  static constexpr int64_t kStep = 64;  // tokens

  explicit KeyValueCache(int64_t layers) : layers_(layers) {}
  // A sequence without tokens, which may come to hold `most`. Returns its number.
  int64_t add(int64_t most);
  // Frees its memory.
  void drop(int64_t sequence);
  int64_t length(int64_t sequence) const { return sequences_.at(sequence).length; }

  // The rows of the forward that follows; their sequences have these tokens from now on. Returns
  // the positions of all rows.
  std::vector<int64_t> begin(std::span<const NewTokens> rows);
  // Of one layer in this forward: keeps the keys and values of qkv [R, (H + 2K) E], as projected
  // and rotated, and returns what its queries give, [R, H*E].
  at::Tensor attention(int64_t layer, const AttentionShape& shape, const at::Tensor& qkv);
  int64_t bytes() const;

 private:
  struct Sequence {
    int64_t most, length = 0;
    std::vector<at::Tensor> layers;  // [2, K, capacity, E]
  };
  struct Rows {
    int64_t sequence, first_row, count, first_position;
  };
  // With room for all its tokens.
  at::Tensor& memory(Sequence& sequence, int64_t layer, const AttentionShape& shape,
                     const at::Tensor& like) const;
  void keep(int64_t layer, const AttentionShape& shape, const at::Tensor& qkv);
  void attend_rows(int64_t layer, const AttentionShape& shape, const at::Tensor& qkv,
                   const at::Tensor& out) const;
  void attend_by_products(int64_t layer, const AttentionShape& shape, const at::Tensor& qkv,
                          const at::Tensor& out) const;

  int64_t layers_, next_ = 0;
  std::map<int64_t, Sequence> sequences_;
  std::vector<Rows> rows_;  // of this forward
};

}  // namespace lockstep::core
