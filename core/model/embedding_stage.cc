#include "base/check.h"
#include "core/model/block_stage.h"
#include "core/sharding/add_kernels.h"

namespace lockstep::core {

namespace {

// sum += row r of dy, in fp32.
void add_row(float* sum, const at::Tensor& dy, int64_t r) {
  const int64_t dim = dy.size(1);
  if (dy.scalar_type() == at::kFloat) {
    add_floats(sum, dy.data_ptr<float>() + r * dim, dim);
  } else {
    add_bf16(sum, static_cast<const uint16_t*>(dy.data_ptr()) + r * dim, dim);
  }
}

}  // namespace

at::Tensor EmbeddingStage::forward(UnitParts units, const at::Tensor&, const SlotInput& slot,
                                   bool) {
  at::Tensor x_RD = units[0].weight(0).index_select(0, slot.tokens_BT.reshape({-1}));
  const int64_t seq_len = slot.tokens_BT.size(1);
  if (positions_)
    x_RD.view({-1, seq_len, x_RD.size(1)}).add_(units[0].weight(1).narrow(0, 0, seq_len));
  return x_RD;
}

// Rows are added in token order in fp32: a token seen 512 times in a slot loses nothing to bf16.
at::Tensor EmbeddingStage::backward(UnitParts units, const at::Tensor& dy,
                                    const SlotInput& slot) {
  at::Tensor sum_VD = units[0].grad_sum(0);
  const at::Tensor tokens = slot.tokens_BT.reshape({-1});
  const int64_t* token = tokens.data_ptr<int64_t>();
  const int64_t dim = sum_VD.size(1);
  LOCKSTEP_CHECK(dy.is_contiguous() && dy.size(1) == dim, dy.size(1), " ", dim);
  float* sum = sum_VD.data_ptr<float>();
  for (int64_t r = 0; r < dy.size(0); ++r) add_row(sum + token[r] * dim, dy, r);
  if (positions_) {
    at::Tensor position_sum_TD = units[0].grad_sum(1);
    const int64_t seq_len = slot.tokens_BT.size(1);
    for (int64_t r = 0; r < dy.size(0); ++r)
      add_row(position_sum_TD.data_ptr<float>() + r % seq_len * dim, dy, r);
  }
  return {};
}

}  // namespace lockstep::core
