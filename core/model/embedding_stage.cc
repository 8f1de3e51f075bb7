#include "core/model/embedding_stage.h"

#include <ATen/ops/empty_like.h>

#include "base/float16.h"
#include "core/kernels/kernel_table.h"

namespace lockstep::core {

void EmbeddingStage::multiply(at::Tensor& rows) const {
  if (scale_ == 1) return;
  const float scale = static_cast<float>(scale_);
  rows.mul_(rows.scalar_type() == at::kBFloat16 ? bf16_to_float(float_to_bf16(scale)) : scale);
}

at::Tensor EmbeddingStage::forward(UnitParts units, const at::Tensor&, const SlotInput& slot,
                                   bool keep) {
  at::Tensor x_RD = units[0].weight(0).index_select(0, slot.tokens_BT.reshape({-1}));
  multiply(x_RD);
  if (positions_) x_RD.add_(units[0].weight(1).index_select(0, slot.documents.positions_R));
  if (keep) dropout_.apply(x_RD, slot);
  return x_RD;
}

// Rows are added in token order in fp32: a token seen 512 times in a slot loses nothing to bf16.
at::Tensor EmbeddingStage::backward(UnitParts units, const at::Tensor& dy, const SlotInput& slot) {
  if (units[0].spec().frozen) return {};
  at::Tensor d = dy;
  if (dropout_.active() || scale_ != 1) {
    d = at::empty_like(dy).copy_(dy);
    dropout_.apply(d, slot);
    multiply(d);
  }
  const Kernels& kernels = kernels_on(d);
  kernels.add_rows(units[0].grad_sum(0), d, slot.tokens_BT.reshape({-1}));
  if (positions_) kernels.add_rows(units[0].grad_sum(1), d, slot.documents.positions_R);
  return {};
}

}  // namespace lockstep::core
