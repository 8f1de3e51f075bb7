// The angles of rotary positions.
#pragma once

#include <ATen/core/Tensor.h>

#include "layout/model_spec.h"

namespace lockstep::core {

struct RotaryTable {
  at::Tensor cos_TH, sin_TH;  // fp32 [T, head_dim/2]
  // Under the type `dynamic` it depends on seq_len too: frequencies are those for its length.
  static RotaryTable create(int64_t seq_len, int64_t head_dim, double theta,
                            const layout::RopeScaling& scaling = {});
};

}  // namespace lockstep::core
