#include "core/sharding/param_views.h"

#include <ATen/ops/empty.h>

namespace lockstep::core {

at::Tensor ParamViews::of(const at::Tensor& flat, int param) const {
  const size_t i = static_cast<size_t>(param);
  const std::vector<int64_t>& shape = spec_.params[i].shape;
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t d = shape.size() - 1; d > 0; --d) strides[d - 1] = strides[d] * shape[d];
  return at::empty({0}, flat.options()).set_(flat.storage(), offsets_[i], shape, strides);
}

void ParamViews::zero_padding(const at::Tensor& flat) const {
  for (size_t i = 0; i < offsets_.size(); ++i) {
    const int64_t from = offsets_[i] + spec_.params[i].elements(),
                  to = i + 1 < offsets_.size() ? offsets_[i + 1] : flat.numel();
    if (to > from) flat.narrow(0, from, to - from).zero_();
  }
}

}  // namespace lockstep::core
