// What the stages of the model compute in a slot, kernel by kernel: the operations of core/model/
// and core/kernels/, with their FLOPs and bytes. As memory_stages.h does for tensors; who changes
// what these compute changes it here.
// Legend: R rows = B*T, D model dim, H query heads, K key heads, E head_dim, F feed-forward dim,
// V vocabulary.
#pragma once

#include <vector>

#include "layout/model_spec.h"
#include "layout/operation.h"

namespace lockstep::layout {

using Operations = std::vector<Operation>;

class StageWork {
 public:
  // Borrows all.
  StageWork(const Config& config, const ModelSpec& spec, const DeviceRates& rates);

  Operations embedding_forward() const;
  Operations layer_forward(int64_t layer) const;
  // Forward and backward of the head, and the loss.
  Operations head() const;
  // What backward computes again where a block kept its input alone; else nothing.
  Operations layer_again(int64_t layer) const;
  Operations layer_backward(int64_t layer) const;
  Operations embedding_backward() const;

  // Scores that attention of `layer` computes, of all heads: on a GPU's fused kernel those that a
  // query sees; else those of whole blocks of queries.
  double scores(int64_t layer) const;
  // A GPU's fused attention keeps sums of dq for each of so many runs of key blocks, in fp32
  // (FlashAttention-2, deterministic).
  int64_t flash_splits() const;
  bool flash() const { return flash_; }

 private:
  void block_run(int64_t layer, Operations& ops) const;
  Operation of_experts(const char* what, int64_t out, int64_t in, bool of_weight) const;
  void experts(Operations& ops) const;
  void experts_end(Operations& ops) const;
  void experts_back(bool frozen, Operations& ops) const;
  void attention(int64_t layer, Operations& ops) const;
  void attention_back(int64_t layer, Operations& ops) const;
  void blocks_of_attention(int64_t layer, bool backward, Operations& ops) const;
  void linear(const char* what, Role first, int count, int64_t layer, Operations& ops) const;
  void linear_back(const char* what, Role first, int count, int64_t layer, Operations& ops) const;
  void norm_back(const char* what, Operations& ops) const;
  void head_chunks(Operations& ops) const;
  void head_chunk(int64_t rows, int64_t times, bool alone, Operations& ops) const;
  const UnitSpec& head_weight_unit() const;
  void low_rank(Role first, int count, int64_t layer, bool backward, Operations& ops) const;
  Operation product(const char* what, int64_t m, int64_t n, int64_t k) const;
  Operation kernel(const char* what, double bytes, double exps = 0) const;
  const UnitSpec& block(int64_t layer) const;

  const DecoderShape& shape_;
  const ModelSpec& spec_;
  const DeviceRates& rates_;
  int64_t batch_, seq_len_, rows_, width_, recompute_every_;
  bool flash_, fused_, dropout_;
  // Bytes of a block's tensors.
  double x_ = 0, qkv_ = 0, attention_ = 0, keys_ = 0, inner_ = 0, s_ = 0;
};

}  // namespace lockstep::layout
