// The last stage of a decoder: norm, logits and loss in chunks of tokens. V: vocabulary, D: dim.
#pragma once

#include "core/kernels/softmax_kernels.h"
#include "core/model/layers.h"
#include "core/model/router_balance.h"
#include "core/sharding/stage.h"
#include "layout/model_spec.h"

namespace lockstep::core {

// With gradients the loss is TokenLoss's, and where there is one the routers' balance counts in
// each valid token's; without (evaluation) it is the plain cross-entropy.
class HeadStage : public LossStage {
 public:
  // The [V, D] matrix is in the head's unit itself, or when tied in the embedding's, which comes
  // second.
  HeadStage(const layout::ModelSpec& spec, TokenLoss loss,
            std::shared_ptr<RouterBalance> balance = nullptr);
  Output run(UnitParts units, const at::Tensor& x, const SlotInput& slot,
             bool want_gradients) override;

 private:
  const layout::DecoderShape& shape_;
  TokenLoss loss_;
  std::shared_ptr<RouterBalance> balance_;
  Norm norm_;
  int weight_param_;
};

}  // namespace lockstep::core
