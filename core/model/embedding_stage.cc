#include "base/check.h"
#include "core/model/block_stage.h"
#include "core/sharding/add_kernels.h"

namespace lockstep::core {

at::Tensor EmbeddingStage::forward(std::span<Unit*> units, const at::Tensor&, const SlotInput& slot,
                                   bool) {
  return units[0]->weight(0).index_select(0, slot.tokens_BT.reshape({-1}));
}

// Rows are added in token order in fp32: a token seen 512 times in a slot loses nothing to bf16.
at::Tensor EmbeddingStage::backward(std::span<Unit*> units, const at::Tensor& dy,
                                    const SlotInput& slot) {
  at::Tensor sum_VD = units[0]->grad_sum(0);
  const at::Tensor tokens = slot.tokens_BT.reshape({-1});
  const int64_t* token = tokens.data_ptr<int64_t>();
  const int64_t dim = sum_VD.size(1);
  LOCKSTEP_CHECK(dy.is_contiguous() && dy.size(1) == dim, dy.size(1), " ", dim);
  float* sum = sum_VD.data_ptr<float>();
  for (int64_t r = 0; r < dy.size(0); ++r) {
    if (dy.scalar_type() == at::kFloat) {
      add_floats(sum + token[r] * dim, dy.data_ptr<float>() + r * dim, dim);
    } else {
      add_bf16(sum + token[r] * dim, static_cast<const uint16_t*>(dy.data_ptr()) + r * dim, dim);
    }
  }
  return {};
}

}  // namespace lockstep::core
