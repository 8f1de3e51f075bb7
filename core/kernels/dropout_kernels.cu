#include "base/hash.h"
#include "core/kernels/cuda_math.cuh"
#include "core/kernels/dropout_kernels.h"

namespace lockstep::core {

using namespace cuda;

// A thread has a run of counters, each of which draws for four elements, and so four runs of x,
// kLanes elements apart.
template <typename Place, typename T>
void dropout(T* x, int64_t first, int64_t n, const DropoutDraw& draw) {
  constexpr int64_t kWords = 4, kLanes = kDropoutRun / kWords;
  constexpr int kRun = kRunOf<T>;
  const int64_t counters = (n + kDropoutRun - 1) / kDropoutRun * kLanes;
  for_each_run<kRun>(counters, aligned<kRun>(x), [=] __device__(Run<kRun> run) {
    uint32_t kept = 0;  // bit w * kRun + k: of word w of the k-th counter
    for (int k = 0; k < kRun; ++k) {
      const Philox4 random =
          philox(draw.key, draw.counter_high, static_cast<uint64_t>(first / 4 + run.first + k));
      for (int w = 0; w < kWords; ++w)
        if (random.word[w] >= draw.threshold) kept |= 1u << (w * kRun + k);
    }
    const int64_t begin = run.first / kLanes * kDropoutRun + run.first % kLanes;
    for (int w = 0; w < kWords; ++w) {
      uint32_t of_word = kept >> (w * kRun);
      each_of(
          run_from<kRun>(begin + w * kLanes, n, run.whole),
          [&](float& value) {
            value = (of_word & 1) != 0 ? value * draw.scale : 0.0f;
            of_word >>= 1;
          },
          x);
    }
  });
}

template void dropout<OnCuda>(float*, int64_t, int64_t, const DropoutDraw&);
template void dropout<OnCuda>(Bf16*, int64_t, int64_t, const DropoutDraw&);

}  // namespace lockstep::core
