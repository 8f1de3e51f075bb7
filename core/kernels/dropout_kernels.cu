#include "base/hash.h"
#include "core/kernels/cuda_math.cuh"
#include "core/kernels/dropout_kernels.h"

namespace lockstep::core {

using namespace cuda;

// A thread for each counter: it draws for four elements.
template <typename Place, typename T>
void dropout(T* x, int64_t first, int64_t n, const DropoutDraw& draw) {
  constexpr int64_t kRun = kDropoutRun, kLanes = 16;
  for_each((n + kRun - 1) / kRun * kLanes, [=] __device__(int64_t counter) {
    const int64_t begin = counter / kLanes * kRun + counter % kLanes;
    const Philox4 random =
        philox(draw.key, draw.counter_high, static_cast<uint64_t>(first / 4 + counter));
    for (int64_t w = 0; w < 4; ++w) {
      const int64_t i = begin + w * kLanes;
      if (i < n) store(x[i], random.word[w] >= draw.threshold ? load(x[i]) * draw.scale : 0.0f);
    }
  });
}

template void dropout<OnCuda>(float*, int64_t, int64_t, const DropoutDraw&);
template void dropout<OnCuda>(Bf16*, int64_t, int64_t, const DropoutDraw&);

}  // namespace lockstep::core
