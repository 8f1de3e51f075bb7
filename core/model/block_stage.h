// The stages of the decoder; decoder.cc puts them together. Legend: B sequences, T tokens, R = B*T
// rows, D model dim, H query heads, K key heads, E head_dim, F feed-forward dim, V vocabulary.
#pragma once

#include "core/model/tensor_kernels.h"
#include "core/sharding/stage.h"
#include "model_spec/model_spec.h"

namespace lockstep::core {

class EmbeddingStage : public Stage {
 public:
  // With a tied head the unit's gradient has the head's part already; see grad_sum.
  explicit EmbeddingStage(int unit) : units_{unit} {}
  const std::vector<int>& units() const override { return units_; }
  bool backward_needs_weights() const override { return false; }
  at::Tensor forward(std::span<Unit*> units, const at::Tensor& x, const SlotInput& slot,
                     bool keep) override;
  at::Tensor backward(std::span<Unit*> units, const at::Tensor& dy, const SlotInput& slot) override;

 private:
  std::vector<int> units_;
};

// x + attention(norm(x)), then + swiglu(norm(.)).
class BlockStage : public Stage {
 public:
  BlockStage(int unit, const model_spec::DecoderShape& shape,
             std::shared_ptr<const RotaryTable> rotary)
      : units_{unit}, shape_(shape), rotary_(std::move(rotary)) {}
  const std::vector<int>& units() const override { return units_; }
  at::Tensor forward(std::span<Unit*> units, const at::Tensor& x, const SlotInput& slot,
                     bool keep) override;
  at::Tensor backward(std::span<Unit*> units, const at::Tensor& dy, const SlotInput& slot) override;

 private:
  // Parameters in the order of model_spec's block unit.
  enum Param { kNorm1, kQ, kK, kV, kO, kNorm2, kGate, kUp, kDown };
  struct Saved {
    at::Tensor x_RD, scale1_R, h1_RD, qkv, attention_RHE, log_sum, x2_RD, scale2_R, h2_RD,
        gate_up_R2F, s_RF;
  };
  // Views of the rotated projections as attention takes them: [B, heads, T, E].
  struct Heads {
    at::Tensor q, k, v;
  };
  Heads heads_of(const at::Tensor& qkv, int64_t batch, int64_t seq_len) const;
  at::Tensor attention_backward(Unit& unit, const at::Tensor& dx2, int64_t batch, int64_t seq_len);

  std::vector<int> units_;
  const model_spec::DecoderShape& shape_;
  std::shared_ptr<const RotaryTable> rotary_;  // one for all blocks
  Saved saved_;
};

class HeadStage : public LossStage {
 public:
  // The [V, D] matrix is in the unit itself, or in `embedding_unit` when tied.
  HeadStage(int unit, int embedding_unit, const model_spec::DecoderShape& shape);
  const std::vector<int>& units() const override { return units_; }
  std::vector<int> finished_units() const override { return {units_[0]}; }
  Output run(std::span<Unit*> units, const at::Tensor& x, const SlotInput& slot,
             bool want_gradients) override;

 private:
  std::vector<int> units_;
  const model_spec::DecoderShape& shape_;
};

}  // namespace lockstep::core
