// The stages between embedding and head. Legend: B sequences, T tokens, R = B*T
// rows, D model dim, H query heads, K key heads, E head_dim, F feed-forward dim, V vocabulary.
#pragma once

#include <optional>

#include "core/kernels/kernel_table.h"
#include "core/model/dropout.h"
#include "core/model/experts.h"
#include "core/model/layers.h"
#include "core/model/router_balance.h"
#include "core/sharding/stage.h"
#include "layout/model_spec.h"

namespace lockstep::core {

// What the blocks share.
struct BlockTables {
  std::shared_ptr<const RotaryTable> rotary;  // null: positions are in the embedding
  AttentionShape attention;
  std::shared_ptr<RouterBalance> balance;  // null: there is no such loss
};

// x + attention(norm(x)), then + feed_forward(norm(.)), each branch through a norm of its own where
// the family has one, and dropout. Its units: the block's, and that of its adapters.
// Between forward and backward a block holds its activations; with `recompute` only x, and backward
// first runs the same operations again. What nothing later reads is freed at once.
class BlockStage : public Stage {
 public:
  // `spec` outlives the stage.
  BlockStage(int64_t layer, const layout::ModelSpec& spec, BlockTables tables, bool recompute,
             double dropout, const LoraConfig& lora, uint64_t seed);
  at::Tensor forward(UnitParts units, const at::Tensor& x, const SlotInput& slot,
                     bool keep) override;
  at::Tensor backward(UnitParts units, const at::Tensor& dy, const SlotInput& slot) override;

 private:
  struct Saved {
    at::Tensor x_RD, norm1, h1_RD, qkv, x2_RD, norm2, h2_RD, inner, s_RF;
    at::Tensor raw_qkv, q_scale_RH, k_scale_RK;  // before the norms of query and key heads
    at::Tensor o_RD, post1, down_RD, post2;      // before the norms of branches
    Routing routing;                             // of experts; inner and s_RF are by place then
    AttentionKept attention;
  };
  BlockStage(int64_t layer, const layout::DecoderShape& shape, const layout::UnitSpec& spec,
             BlockTables tables, bool recompute, double dropout, uint64_t seed);
  // From s.x_RD to s.s_RF, what the last projection takes. `all`: backward follows.
  void run(UnitParts units, const SlotInput& slot, bool train, bool all, Saved& s) const;
  void project_heads(UnitParts units, const SlotInput& slot, bool train, bool all, Saved& s) const;
  // From s.s_RF to the feed-forward branch, before dropout.
  at::Tensor feed_forward_end(UnitParts units, const SlotInput& slot, bool train, bool all,
                              Saved& s) const;
  // A branch's gradient, before its norm and dropout, for that of the sum; `post`: maybe none.
  at::Tensor branch_back(const UnitPart& unit, const at::Tensor& dy, const SlotInput& slot,
                         const Dropout& dropout, const std::optional<Norm>& post, at::Tensor raw,
                         const at::Tensor& kept) const;
  at::Tensor project_heads_back(const UnitPart& unit, at::Tensor d_qkv, const Documents& documents);
  at::Tensor dense_back(UnitParts units, at::Tensor branch, const SlotInput& slot);
  at::Tensor experts_back(const UnitPart& unit, at::Tensor branch);
  at::Tensor feed_forward_back(UnitParts units, const at::Tensor& dy, const SlotInput& slot);
  at::Tensor attention_back(UnitParts units, const at::Tensor& dx2, const SlotInput& slot);

  int64_t layer_;
  const layout::DecoderShape& shape_;
  BlockTables tables_;
  bool recompute_;
  Norm norm1_, norm2_;
  std::optional<Norm> post1_, post2_;
  Linear qkv_, o_;
  std::optional<Linear> inner_, down_;  // inner: gate and up, or up alone
  std::optional<Experts> experts_;      // in their place
  Dropout attention_dropout_, feed_forward_dropout_;
  int q_norm_, k_norm_;  // parameters; -1: none
  Saved saved_;
};

// x W^T: the layer of the family "linear".
class LinearStage : public Stage {
 public:
  explicit LinearStage(const layout::UnitSpec& spec)
      : linear_(spec, layout::Role::kUp, 1, layout::Role::kUpBias, false) {}
  at::Tensor forward(UnitParts units, const at::Tensor& x, const SlotInput& slot,
                     bool keep) override;
  at::Tensor backward(UnitParts units, const at::Tensor& dy, const SlotInput& slot) override;

 private:
  Linear linear_;
  at::Tensor x_RD_;
};

}  // namespace lockstep::core
