// The last stage of a decoder: norm, logits and loss in chunks of tokens. V: vocabulary, D: dim.
#pragma once

#include "core/model/layers.h"
#include "core/sharding/stage.h"
#include "layout/model_spec.h"

namespace lockstep::core {

// With gradients the loss is TokenLoss's; without (evaluation) it is the plain cross-entropy.
class HeadStage : public LossStage {
 public:
  // The [V, D] matrix is in the unit itself, or in `embedding_unit` when tied.
  HeadStage(int unit, int embedding_unit, const layout::ModelSpec& spec, TokenLoss loss);
  const std::vector<int>& units() const override { return units_; }
  std::vector<int> finished_units() const override { return {units_[0]}; }
  Output run(UnitParts units, const at::Tensor& x, const SlotInput& slot,
             bool want_gradients) override;

 private:
  std::vector<int> units_;
  const layout::DecoderShape& shape_;
  TokenLoss loss_;
  Norm norm_;
  int weight_param_;
};

}  // namespace lockstep::core
