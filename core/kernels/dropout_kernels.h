// Dropout by counter on plain memory. No Torch. T is float or Bf16; the same bits on
// every device.
#pragma once

#include <cstdint>

#include "core/kernels/kernel_types.h"

namespace lockstep::core {

// One random bit for each element of x, drawn by counter: x[i] *= scale where it is kept, else 0.
// Element e = 64 b + 16 w + l of the tensor is kept where word w of Philox(key, counter_high,
// 16 b + l) is at least `threshold`.
struct DropoutDraw {
  uint64_t key, counter_high;
  uint32_t threshold;  // probability of dropping * 2^32
  float scale;         // 1 / (1 - probability)
};
inline constexpr int64_t kDropoutRun = 64;
// `first`, x's place in the tensor, is a multiple of kDropoutRun.
template <typename Place, typename T>
void dropout(T* x, int64_t first, int64_t n, const DropoutDraw& draw);

}  // namespace lockstep::core
