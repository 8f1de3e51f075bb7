#include "core/model/embedding_stage.h"
#include "core/device/runtime.h"
#include "core/kernels/cuda_tensors.h"
#include "core/kernels/element_type.h"
#include "core/kernels/parallel.h"

namespace lockstep::core {
namespace {

constexpr int64_t kColumnGrain = 64;

// Row to_row[r] of sum += row r of dy, for all r in order, in fp32. Threads share the columns.
void add_rows(const at::Tensor& sum, const at::Tensor& dy, const at::Tensor& to_row) {
  const int64_t dim = dy.size(1), rows = dy.size(0);
  LOCKSTEP_CHECK(sum.size(1) == dim && sum.is_contiguous(), sum.size(1), " ", dim);
  by_type(dy, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const T* from = ptr<T>(dy);
    float* const to = sum.data_ptr<float>();
    const int64_t* const row = to_row.data_ptr<int64_t>();
    parallel_ranges(dim, kColumnGrain, [&](int64_t begin, int64_t end) {
      for (int64_t r = 0; r < rows; ++r)
        add_to(to + row[r] * dim + begin, from + r * dim + begin, end - begin);
    });
  });
}

}  // namespace

at::Tensor EmbeddingStage::forward(UnitParts units, const at::Tensor&, const SlotInput& slot,
                                   bool keep) {
  at::Tensor x_RD = units[0].weight(0).index_select(0, slot.tokens_BT.reshape({-1}));
  if (positions_) x_RD.add_(units[0].weight(1).index_select(0, slot.documents.positions_R));
  if (keep) dropout_.apply(x_RD, slot);
  return x_RD;
}

// Rows are added in token order in fp32: a token seen 512 times in a slot loses nothing to bf16.
at::Tensor EmbeddingStage::backward(UnitParts units, const at::Tensor& dy, const SlotInput& slot) {
  if (units[0].spec().frozen) return {};
  at::Tensor d = dy;
  if (dropout_.active()) {
    d = at::empty_like(dy).copy_(dy);
    dropout_.apply(d, slot);
  }
  const at::Tensor tokens = slot.tokens_BT.reshape({-1});
  const at::Tensor& positions = slot.documents.positions_R;
  if constexpr (cuda::kBuilt) {
    if (d.is_cuda()) {
      cuda::add_token_rows(units[0].grad_sum(0), d, tokens);
      if (positions_) cuda::add_token_rows(units[0].grad_sum(1), d, positions);
      return {};
    }
  }
  add_rows(units[0].grad_sum(0), d, tokens);
  if (positions_) add_rows(units[0].grad_sum(1), d, positions);
  return {};
}

}  // namespace lockstep::core
