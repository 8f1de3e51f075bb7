#include "core/kernels/muon_kernels.h"

#include <algorithm>
#include <cmath>

#include "core/kernels/kernel_math.h"
#include "core/kernels/parallel.h"

// AVX2 alone has no fma.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__)
#define LOCKSTEP_FMA_CLONES __attribute__((target_clones("avx512f", "fma", "default")))
#else
#define LOCKSTEP_FMA_CLONES
#endif

namespace lockstep::core {
namespace {

Lerp lerp_by(double weight) {
  const float w = static_cast<float>(weight);
  const bool near_start = w < 0.5f;
  return {near_start ? w : w - 1.0f, near_start};
}

}  // namespace

MuonStep MuonStep::create(double lr, double momentum, double weight_decay, double clip,
                          int64_t rows, int64_t cols) {
  const double longer = static_cast<double>(std::max(rows, cols));
  return {static_cast<float>(clip), lerp_by(1.0 - momentum), lerp_by(momentum),
          static_cast<float>(1.0 - lr * weight_decay),
          static_cast<float>(lr * 0.2 * std::sqrt(longer))};
}

namespace {

constexpr int64_t kGrain = 16 * 4096;  // worth a thread's while

LOCKSTEP_INLINE float lerp(const Lerp& way, float start, float end) {
  return __builtin_fmaf(way.share, end - start, way.near_start ? start : end);
}

LOCKSTEP_FMA_CLONES
void momentum_run(const MuonStep& s, const float* __restrict grad, float* __restrict m,
                  float* __restrict direction, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const float g = grad[i] * s.clip;
    const float m_new = lerp(s.to_gradient, m[i], g);
    m[i] = m_new;
    direction[i] = lerp(s.to_momentum, g, m_new);
  }
}

LOCKSTEP_FMA_CLONES
void update_run(const MuonStep& s, const float* __restrict update, float* __restrict master,
                int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    master[i] = __builtin_fmaf(-s.step_size, update[i], master[i] * s.keep);
}

}  // namespace

template <>
void muon_momentum<OnCpu>(const MuonStep& step, const float* grad, float* m, Bf16* out, int64_t n) {
  parallel_ranges(n, kGrain, [&](int64_t begin, int64_t end) {
    float run[kRun];
    for (int64_t i = begin; i < end; i += kRun) {
      const int64_t count = std::min(kRun, end - i);
      momentum_run(step, grad + i, m + i, run, count);
      if (out != nullptr) narrowed(out + i, run, count);
    }
  });
}

template <>
void muon_update<OnCpu>(const MuonStep& step, const Bf16* update, float* master, Bf16* copy,
                        int64_t n) {
  parallel_ranges(n, kGrain, [&](int64_t begin, int64_t end) {
    float run[kRun];
    for (int64_t i = begin; i < end; i += kRun) {
      const int64_t count = std::min(kRun, end - i);
      update_run(step, widened(update + i, run, count), master + i, count);
      if (copy != nullptr) narrowed(copy + i, master + i, count);
    }
  });
}

}  // namespace lockstep::core
