// The arithmetic is adamw_kernels.cc's, operation by operation: nvcc contracts nothing
// (--fmad=false), and its division and square root are correctly rounded.
#include "core/kernels/adamw_kernels.h"

#include "base/hash.h"
#include "core/kernels/cuda_math.cuh"
#include "layout/model_spec.h"

namespace lockstep::core {

using namespace cuda;

namespace {

constexpr int kLanes = 8, kTileThreads = 64, kRun = kRunOf<float>;

// What the elements of a run share.
struct Update {
  AdamWStep step;
  float keep, step_size, rest1, rest2;

  Update(const AdamWStep& s, bool decay)
      : step(s),
        keep(decay ? 1.0f - s.lr * s.weight_decay : 1.0f),
        step_size(s.lr / s.correction1),
        rest1(1.0f - s.beta1),
        rest2(1.0f - s.beta2) {}

  __device__ void apply(float grad, float& master, float& m, float& v) const {
    const float g = grad * step.clip;
    const float m_new = step.beta1 * m + rest1 * g;
    const float v_new = step.beta2 * v + rest2 * g * g;
    m = m_new;
    v = v_new;
    const float denominator = sqrtf(v_new) / step.correction2 + step.eps;
    master = master * keep - step_size * (m_new / denominator);
  }
};

// Eight threads a tile, one for each lane of the CPU's sum; they meet in its order. A thread has
// kAhead elements under way, and blocks are small: a rank may have few tiles. 64 registers at most.
__global__ void __launch_bounds__(kTileThreads, blocks_to_fill(kTileThreads) / 2)
    square_tiles_kernel(float* grad, float scale, int64_t tiles, double* sums_out) {
  constexpr int64_t kTile = layout::kTileElements;
  constexpr int kAhead = 32;
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t tile = thread / kLanes;
  double sum = 0;
  if (tile < tiles) {
    float* mine = grad + tile * kTile + thread % kLanes;
    for (int64_t i = 0; i < kTile; i += kAhead * kLanes, mine += kAhead * kLanes) {
      float ahead[kAhead];
      for (int k = 0; k < kAhead; ++k) ahead[k] = mine[k * kLanes];
      for (int k = 0; k < kAhead; ++k) {
        const float g = ahead[k] * scale;
        mine[k * kLanes] = g;
        sum += static_cast<double>(g) * static_cast<double>(g);
      }
    }
  }
  // l0+l4, l1+l5, …; then (l0+l4)+(l2+l6) and (l1+l5)+(l3+l7); then both.
  for (int distance = kLanes / 2; distance > 0; distance /= 2)
    sum += __shfl_xor_sync(kAllLanes, sum, distance);
  if (tile < tiles && thread % kLanes == 0) sums_out[tile] = sum;
}

}  // namespace

template <>
void adamw_update<OnCuda>(const AdamWStep& s, bool decay, const float* grad, float* master,
                          float* m, float* v, int64_t n) {
  const Update update(s, decay);
  for_each_run<kRun>(n, aligned<kRun>(grad, master, m, v), [=] __device__(Run<kRun> run) {
    each_of(
        run, [=](float g, float& weight, float& m1, float& m2) { update.apply(g, weight, m1, m2); },
        grad, master, m, v);
  });
}

// A thread for each counter: it draws for four elements.
template <>
void adamw_update_bf16<OnCuda>(const AdamWStep& s, bool decay, const float* grad, float* master,
                               Bf16* m, Bf16* v, const MomentDraw& draw, int64_t n) {
  constexpr int64_t kRunLanes = kMomentRun / 4;
  const Update update(s, decay);
  const MomentDraw drawn = draw;
  for_each((n + kMomentRun - 1) / kMomentRun * kRunLanes, [=] __device__(int64_t counter) {
    const int64_t begin = counter / kRunLanes * kMomentRun + counter % kRunLanes;
    const Philox4 random = philox(drawn.key, static_cast<uint64_t>(update.step.t),
                                  static_cast<uint64_t>(drawn.first / 4 + counter));
    for (int64_t w = 0; w < 4; ++w) {
      const int64_t i = begin + w * kRunLanes;
      if (i >= n) return;
      float wide_m = load(m[i]), wide_v = load(v[i]);
      update.apply(grad[i], master[i], wide_m, wide_v);
      m[i].bits = stochastic_bf16(wide_m, random.word[w]);
      v[i].bits = stochastic_bf16(wide_v, random.word[w] >> 16);
    }
  });
}

template <>
void scale_and_square_tiles<OnCuda>(float* grad, float scale, int64_t tiles, double* sums_out) {
  if (tiles == 0) return;
  launch<square_tiles_kernel>(blocks_for(tiles * kLanes, kTileThreads), kTileThreads, grad, scale,
                              tiles, sums_out);
}

}  // namespace lockstep::core
