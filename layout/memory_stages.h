// What the stages of the model hold while they compute a slot: activations saved for backward and
// working memory. The same tensors, in the same order, as core/model/ makes them, in bytes.
// Legend: R rows = B*T, D model dim, H query heads, K key heads, E head_dim, F feed-forward dim,
// V vocabulary.
#pragma once

#include "layout/memory_ledger.h"
#include "layout/memory_units.h"
#include "layout/stage_sizes.h"

namespace lockstep::layout {

class StageMemory {
 public:
  // Borrows the ledger and `spec`. Holds the tables that all blocks share.
  StageMemory(const Config& config, const ModelSpec& spec, int64_t compute_bytes, WorkSizes sizes,
              MemoryLedger& ledger);

  // Of a stage's input or output [R, D].
  int64_t x_bytes() const { return x_; }
  // Tokens, labels and positions of a slot.
  int64_t input_bytes() const { return 3 * rows_ * 8; }

  // Holds the embedding's output; a block's saved tensors and output; a linear layer's output.
  void embedding_forward();
  // `adapters`: the block's, or null.
  void layer_forward(const PartMemory& part, const PartMemory* adapters, int64_t layer);
  // Loss and its backward; holds dx.
  void head(const PartMemory& own, const PartMemory& weight);
  // Holds dx; drops what forward saved, its input x included.
  void layer_backward(const PartMemory& part, const PartMemory* adapters, int64_t layer);
  void embedding_backward(const PartMemory& part);

 private:
  void hold_tables();
  void block_forward(const PartMemory& part, const PartMemory* adapters, int64_t layer);
  void block_run(const PartMemory& part, const PartMemory* adapters, int64_t layer, bool all);
  void block_end(const PartMemory* adapters, bool all);
  int64_t norms() const;
  void experts_run(const PartMemory& part);
  // `branch`: its gradient, where that has memory of its own.
  void dense_backward(const PartMemory& part, const PartMemory* adapters, Held& branch);
  void experts_backward(const PartMemory& part, Held& branch);
  void block_backward(const PartMemory& part, const PartMemory* adapters, int64_t layer);
  void low_rank(const PartMemory* adapters, Role first, int count, bool backward);
  void attention_backward(int64_t layer);
  struct ScoreBlock {
    int64_t scores, queries, key_copy;
  };
  ScoreBlock score_block(int64_t layer) const;
  int64_t probabilities(int64_t layer) const;

  const DecoderShape& shape_;
  const ModelSpec& spec_;
  MemoryLedger& ledger_;
  WorkSizes sizes_;
  int64_t batch_, seq_len_, rows_, width_, recompute_every_;
  bool fused_, dropout_, adapter_dropout_, post_norms_, capped_;
  // Bytes of a block's tensors.
  int64_t x_ = 0, norm_ = 0, qkv_ = 0, head_scales_ = 0, attention_ = 0, keys_ = 0, inner_ = 0,
          s_ = 0;
  // Of experts: what a router says of a slot; a tensor of a row for each place.
  int64_t routing_ = 0, places_ = 0;
};

}  // namespace lockstep::layout
