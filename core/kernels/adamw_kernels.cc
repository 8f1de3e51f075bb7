#include "core/kernels/adamw_kernels.h"

#include <algorithm>
#include <cmath>

#include "base/elementary.h"
#include "core/kernels/add_kernels.h"
#include "core/kernels/kernel_math.h"
#include "core/kernels/parallel.h"
#include "layout/model_spec.h"

namespace lockstep::core {

AdamWStep AdamWStep::create(double lr, double beta1, double beta2, double eps, double weight_decay,
                            double clip, int64_t t) {
  const double n = static_cast<double>(t);
  return {static_cast<float>(lr),
          static_cast<float>(beta1),
          static_cast<float>(beta2),
          static_cast<float>(eps),
          static_cast<float>(weight_decay),
          static_cast<float>(clip),
          static_cast<float>(1.0 - elementary::pow(beta1, n)),
          static_cast<float>(std::sqrt(1.0 - elementary::pow(beta2, n))),
          t};
}

namespace {

constexpr int64_t kTile = layout::kTileElements;
constexpr int64_t kGrainTiles = 16;  // worth a thread's while

LOCKSTEP_INLINE void update_elements(const AdamWStep& s, bool decay, const float* __restrict grad,
                                     float* __restrict master, float* __restrict m,
                                     float* __restrict v, int64_t n) {
  const float keep = decay ? 1.0f - s.lr * s.weight_decay : 1.0f;
  const float step_size = s.lr / s.correction1;
  const float rest1 = 1.0f - s.beta1, rest2 = 1.0f - s.beta2;
  for (int64_t i = 0; i < n; ++i) {
    const float g = grad[i] * s.clip;
    const float m_new = s.beta1 * m[i] + rest1 * g;
    const float v_new = s.beta2 * v[i] + rest2 * g * g;
    m[i] = m_new;
    v[i] = v_new;
    const float denominator = __builtin_sqrtf(v_new) / s.correction2 + s.eps;
    master[i] = master[i] * keep - step_size * (m_new / denominator);
  }
}

LOCKSTEP_VECTOR_CLONES
void update_run(const AdamWStep& s, bool decay, const float* __restrict grad,
                float* __restrict master, float* __restrict m, float* __restrict v, int64_t n) {
  update_elements(s, decay, grad, master, m, v, n);
}

LOCKSTEP_VECTOR_CLONES
void update_rounded_run(const AdamWStep& s, bool decay, const float* __restrict grad,
                        float* __restrict master, Bf16* __restrict m, Bf16* __restrict v,
                        const MomentDraw& draw, int64_t n) {
  static_assert(kMomentRun == 4 * kLanes);
  float wide_m[kMomentRun], wide_v[kMomentRun];
  uint32_t words[4][kLanes];
  for (int64_t i = 0; i < n; i += kMomentRun) {
    const int64_t count = std::min(kMomentRun, n - i);
    widened(m + i, wide_m, count);
    widened(v + i, wide_v, count);
    update_elements(s, decay, grad + i, master + i, wide_m, wide_v, count);
    philox_lanes(draw.key, static_cast<uint64_t>(s.t), static_cast<uint64_t>((draw.first + i) / 4),
                 words);
    const uint32_t* word = &words[0][0];
    for (int64_t k = 0; k < count; ++k) {
      m[i + k].bits = stochastic_bf16(wide_m[k], word[k]);
      v[i + k].bits = stochastic_bf16(wide_v[k], word[k] >> 16);
    }
  }
}

LOCKSTEP_VECTOR_CLONES
void square_run(float* grad, float scale, int64_t tiles, double* sums_out) {
  constexpr int kLanes = 8;
  for (int64_t tile = 0; tile < tiles; ++tile, grad += kTile) {
    double lanes[kLanes] = {};
    for (int64_t i = 0; i < kTile; i += kLanes)
      for (int k = 0; k < kLanes; ++k) {
        const float g = grad[i + k] * scale;
        grad[i + k] = g;
        lanes[k] += static_cast<double>(g) * static_cast<double>(g);
      }
    sums_out[tile] = ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
                     ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
  }
}

double sum_of_subtree(const double* leaves, int64_t count) {
  if (count == 1) return leaves[0];
  const int64_t half = count / 2;
  return sum_of_subtree(leaves, half) + sum_of_subtree(leaves + half, half);
}

}  // namespace

// A copy is made of each range right after it: a cache has the weights.
template <>
void adamw_update<OnCpu>(const AdamWStep& step, std::span<const AdamWRun<float>> runs) {
  for (const AdamWRun<float>& r : runs)
    parallel_ranges(r.n, kGrainTiles * kTile, [&](int64_t begin, int64_t end) {
      update_run(step, r.decays, r.grad + begin, r.master + begin, r.m + begin, r.v + begin,
                 end - begin);
      if (r.copy != nullptr) narrow<OnCpu>(r.copy + begin, r.master + begin, end - begin);
    });
}

template <>
void adamw_update<OnCpu>(const AdamWStep& step, std::span<const AdamWRun<Bf16>> runs) {
  for (const AdamWRun<Bf16>& r : runs)
    parallel_ranges((r.n + kMomentRun - 1) / kMomentRun, kGrainTiles * kTile / kMomentRun,
                    [&](int64_t begin, int64_t end) {
                      const int64_t at = begin * kMomentRun;
                      const int64_t count = std::min(r.n, end * kMomentRun) - at;
                      update_rounded_run(step, r.decays, r.grad + at, r.master + at, r.m + at,
                                         r.v + at, {r.draw.key, r.draw.first + at}, count);
                      if (r.copy != nullptr) narrow<OnCpu>(r.copy + at, r.master + at, count);
                    });
}

template <>
void scale_and_square_tiles<OnCpu>(float* grad, float scale, int64_t tiles, double* sums_out) {
  parallel_ranges(tiles, kGrainTiles, [&](int64_t begin, int64_t end) {
    square_run(grad + begin * kTile, scale, end - begin, sums_out + begin);
  });
}

template <>
void sum_subtrees<OnCpu>(const double* leaves, std::span<const layout::SlotRun> runs,
                         double* sums_out) {
  for (const layout::SlotRun& run : runs)
    *sums_out++ = sum_of_subtree(leaves + run.first, run.count);
}

}  // namespace lockstep::core
