// The parameters of a unit inside one flat buffer of the whole unit, padded to whole tiles.
// Borrows the spec.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "layout/shard_layout.h"

namespace lockstep::core {

using layout::Segment;
using layout::ShardLayout;

class ParamViews {
 public:
  explicit ParamViews(const layout::UnitSpec& spec)
      : spec_(spec), offsets_(layout::param_offsets(spec)) {}
  // Of the parameter's shape, over the memory of `flat`.
  at::Tensor of(const at::Tensor& flat, int param) const;
  // Zeroes what lies behind each parameter up to the next tile, and behind the last tile.
  void zero_padding(const at::Tensor& flat) const;

 private:
  const layout::UnitSpec& spec_;
  std::vector<int64_t> offsets_;
};

}  // namespace lockstep::core
