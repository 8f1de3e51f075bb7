// The stages of the decoder; decoder.cc puts them together. Legend: B sequences, T tokens, R = B*T
// rows, D model dim, H query heads, K key heads, E head_dim, F feed-forward dim, V vocabulary.
#pragma once

#include "core/model/layers.h"
#include "core/model/tensor_kernels.h"
#include "core/sharding/stage.h"
#include "model_spec/model_spec.h"

namespace lockstep::core {

class EmbeddingStage : public Stage {
 public:
  // With a tied head the unit's gradient has the head's part already; see grad_sum. With
  // `positions`, parameter 1 is added: a row for each position.
  EmbeddingStage(int unit, bool positions) : units_{unit}, positions_(positions) {}
  const std::vector<int>& units() const override { return units_; }
  bool backward_needs_weights() const override { return false; }
  at::Tensor forward(UnitParts units, const at::Tensor& x, const SlotInput& slot,
                     bool keep) override;
  at::Tensor backward(UnitParts units, const at::Tensor& dy, const SlotInput& slot) override;

 private:
  std::vector<int> units_;
  bool positions_;
};

// What positions see of each other; shared by the blocks.
struct AttentionTables {
  std::shared_ptr<const RotaryTable> rotary;  // null: positions are in the embedding
  at::Tensor mask_TT;  // added to the scores; undefined: causal, without a window
};

// x + attention(norm(x)), then + feed_forward(norm(.)).
class BlockStage : public Stage {
 public:
  // `spec` outlives the stage.
  BlockStage(int unit, const model_spec::ModelSpec& spec, AttentionTables tables);
  const std::vector<int>& units() const override { return units_; }
  at::Tensor forward(UnitParts units, const at::Tensor& x, const SlotInput& slot,
                     bool keep) override;
  at::Tensor backward(UnitParts units, const at::Tensor& dy, const SlotInput& slot) override;

 private:
  struct Saved {
    at::Tensor x_RD, norm1, h1_RD, qkv, attention_RHE, log_sum, x2_RD, norm2, h2_RD, inner, s_RF;
    at::Tensor raw_qkv, q_scale_RH, k_scale_RK;  // before the norms of query and key heads
  };
  // Views of the rotated projections as attention takes them: [B, heads, T, E].
  struct Heads {
    at::Tensor q, k, v;
  };
  BlockStage(int unit, const model_spec::DecoderShape& shape, const model_spec::UnitSpec& spec,
             AttentionTables tables);
  std::optional<at::Tensor> mask() const {
    return tables_.mask_TT.defined() ? std::optional(tables_.mask_TT) : std::nullopt;
  }
  Heads heads_of(const at::Tensor& qkv, int64_t batch, int64_t seq_len) const;
  at::Tensor project_heads(const UnitPart& unit, int64_t seq_len, Saved& s) const;
  at::Tensor attention_backward(const UnitPart& unit, const at::Tensor& dx2, int64_t batch,
                                int64_t seq_len);
  at::Tensor project_heads_back(const UnitPart& unit, at::Tensor d_qkv, int64_t seq_len);

  std::vector<int> units_;
  const model_spec::DecoderShape& shape_;
  AttentionTables tables_;
  Norm norm1_, norm2_;
  Linear qkv_, o_, inner_, down_;  // inner: gate and up, or up alone
  int q_norm_, k_norm_;            // parameters; -1: none
  Saved saved_;
};

// x W^T: the layer of the family "linear".
class LinearStage : public Stage {
 public:
  LinearStage(int unit, const model_spec::UnitSpec& spec)
      : units_{unit}, linear_(spec, model_spec::Role::kUp, 1, model_spec::Role::kUpBias, false) {}
  const std::vector<int>& units() const override { return units_; }
  at::Tensor forward(UnitParts units, const at::Tensor& x, const SlotInput& slot,
                     bool keep) override;
  at::Tensor backward(UnitParts units, const at::Tensor& dy, const SlotInput& slot) override;

 private:
  std::vector<int> units_;
  Linear linear_;
  at::Tensor x_RD_;
};

class HeadStage : public LossStage {
 public:
  // The [V, D] matrix is in the unit itself, or in `embedding_unit` when tied.
  HeadStage(int unit, int embedding_unit, const model_spec::ModelSpec& spec);
  const std::vector<int>& units() const override { return units_; }
  std::vector<int> finished_units() const override { return {units_[0]}; }
  Output run(UnitParts units, const at::Tensor& x, const SlotInput& slot,
             bool want_gradients) override;

 private:
  std::vector<int> units_;
  const model_spec::DecoderShape& shape_;
  Norm norm_;
  int weight_param_;
};

}  // namespace lockstep::core
