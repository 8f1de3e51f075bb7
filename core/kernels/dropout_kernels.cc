#include "core/kernels/dropout_kernels.h"

#include <algorithm>

#include "core/kernels/kernel_math.h"

namespace lockstep::core {
namespace {

static_assert(kDropoutRun == 4 * kLanes);

// base/hash.h's philox for the counters low … low + kLanes - 1 at once: words[w][l] is word w of
// counter low + l.
LOCKSTEP_INLINE void philox_lanes(uint64_t key, uint64_t high, uint64_t low,
                                  uint32_t (*words)[kLanes]) {
  uint32_t key0 = static_cast<uint32_t>(key), key1 = static_cast<uint32_t>(key >> 32);
  for (int64_t l = 0; l < kLanes; ++l) {
    const uint64_t counter = low + static_cast<uint64_t>(l);
    words[0][l] = static_cast<uint32_t>(counter);
    words[1][l] = static_cast<uint32_t>(counter >> 32);
    words[2][l] = static_cast<uint32_t>(high);
    words[3][l] = static_cast<uint32_t>(high >> 32);
  }
  for (int round = 0; round < 10; ++round) {
    for (int64_t l = 0; l < kLanes; ++l) {
      const uint64_t product0 = uint64_t{0xd2511f53} * words[0][l];
      const uint64_t product1 = uint64_t{0xcd9e8d57} * words[2][l];
      words[0][l] = static_cast<uint32_t>(product1 >> 32) ^ words[1][l] ^ key0;
      words[1][l] = static_cast<uint32_t>(product1);
      words[2][l] = static_cast<uint32_t>(product0 >> 32) ^ words[3][l] ^ key1;
      words[3][l] = static_cast<uint32_t>(product0);
    }
    key0 += 0x9e3779b9;
    key1 += 0xbb67ae85;
  }
}

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
