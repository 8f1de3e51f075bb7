#include "core/kernels/dropout_kernels.h"

#include <algorithm>

#include "core/kernels/kernel_math.h"

namespace lockstep::core {
namespace {

static_assert(kDropoutRun == 4 * kLanes);

LOCKSTEP_KERNEL dropout_run(T* x, int64_t first, int64_t count, const DropoutDraw& draw) {
  float run[kDropoutRun];
  uint32_t words[4][kLanes];
  for (int64_t i = 0; i < count; i += kDropoutRun) {
    philox_lanes(draw.key, draw.counter_high, static_cast<uint64_t>((first + i) / 4), words);
    const int64_t n = std::min(kDropoutRun, count - i);
    const float* xf = widened(x + i, run, n);
    float* out = room_for(x + i, run);
    const uint32_t* word = &words[0][0];
#pragma GCC ivdep
    for (int64_t k = 0; k < n; ++k) out[k] = word[k] >= draw.threshold ? xf[k] * draw.scale : 0.0f;
    narrowed(x + i, out, n);
  }
}

}  // namespace

LOCKSTEP_CLONED dropout<OnCpu>(float* x, int64_t first, int64_t n, const DropoutDraw& draw) {
  dropout_run(x, first, n, draw);
}
LOCKSTEP_CLONED dropout<OnCpu>(Bf16* x, int64_t first, int64_t n, const DropoutDraw& draw) {
  dropout_run(x, first, n, draw);
}

}  // namespace lockstep::core
