// The arithmetic is adamw_kernels.cc's, operation by operation: nvcc contracts nothing
// (--fmad=false), and its division and square root are correctly rounded.
#include "core/kernels/adamw_kernels.h"

#include "core/device/launch.cuh"
#include "layout/model_spec.h"

namespace lockstep::core {

using namespace cuda;

namespace {

constexpr int kLanes = 8, kTileThreads = 256;

// Eight threads a tile, one for each lane of the CPU's sum; they meet in its order.
__global__ void __launch_bounds__(kTileThreads, blocks_to_fill(kTileThreads))
    square_tiles_kernel(float* grad, float scale, int64_t tiles, double* sums_out) {
  constexpr int64_t kTile = layout::kTileElements;
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t tile = thread / kLanes;
  double sum = 0;
  if (tile < tiles) {
    float* mine = grad + tile * kTile + thread % kLanes;
    for (int64_t i = 0; i < kTile; i += kLanes) {
      const float g = mine[i] * scale;
      mine[i] = g;
      sum += static_cast<double>(g) * static_cast<double>(g);
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
  const float keep = decay ? 1.0f - s.lr * s.weight_decay : 1.0f;
  const float step_size = s.lr / s.correction1;
  const float rest1 = 1.0f - s.beta1, rest2 = 1.0f - s.beta2;
  const AdamWStep step = s;
  for_each(n, [=] __device__(int64_t i) {
    const float g = grad[i] * step.clip;
    const float m_new = step.beta1 * m[i] + rest1 * g;
    const float v_new = step.beta2 * v[i] + rest2 * g * g;
    m[i] = m_new;
    v[i] = v_new;
    const float denominator = sqrtf(v_new) / step.correction2 + step.eps;
    master[i] = master[i] * keep - step_size * (m_new / denominator);
  });
}

template <>
void scale_and_square_tiles<OnCuda>(float* grad, float scale, int64_t tiles, double* sums_out) {
  if (tiles == 0) return;
  launch<square_tiles_kernel>(blocks_for(tiles * kLanes, kTileThreads), kTileThreads, grad, scale,
                              tiles, sums_out);
}

}  // namespace lockstep::core
