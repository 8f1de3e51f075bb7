// The arithmetic is initial_kernels.cc's: nvcc contracts nothing (--fmad=false), and its root is
// correctly rounded.
#include "core/kernels/initial_kernels.h"

#include "core/kernels/cuda_math.cuh"

namespace lockstep::core {

using namespace cuda;

namespace {

constexpr int kQuad = 4, kDrawThreads = 128;

template <bool Uniform>
__device__ Floats<kQuad> quad_of(const InitialDraw& draw, int64_t quad) {
  const Philox4 random = philox(draw.key, 0, static_cast<uint64_t>(quad));
  Floats<kQuad> values;
  if constexpr (Uniform) {
    for (int k = 0; k < kQuad; ++k)
      values.at[k] = static_cast<float>(draw.scale * uniform_number(random.word[k]));
  } else {
    for (int k = 0; k < kQuad; k += 2) {
      const NormalPair pair =
          normal_pair(unit_interval(random.word[k]), unit_interval(random.word[k + 1]));
      const double radius = sqrt(pair.squared_radius);
      values.at[k] = static_cast<float>(draw.scale * (radius * pair.angle.cos));
      values.at[k + 1] = static_cast<float>(draw.scale * (radius * pair.angle.sin));
    }
  }
  return values;
}

// A thread for each counter: it draws for four elements. 128 registers at most: the kernel waits
// for its arithmetic.
template <bool Uniform>
__global__ void __launch_bounds__(kDrawThreads, blocks_to_fill(kDrawThreads) / 4)
    draw_kernel(InitialDraw draw, float* out, int64_t n, bool in_runs) {
  const int64_t quad =
      draw.first / kQuad + static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t first = quad * kQuad - draw.first;  // in `out`
  if (first >= n) return;
  const Floats<kQuad> values = quad_of<Uniform>(draw, quad);
  if (in_runs && first + kQuad <= n) return store_run(out + first, values);
  for (int k = 0; k < kQuad; ++k)
    if (first + k >= 0 && first + k < n) out[first + k] = values.at[k];
}

}  // namespace

template <>
void draw_initial<OnCuda>(const InitialDraw& draw, float* out, int64_t n) {
  if (n == 0) return;
  const auto kernel = draw.uniform ? launch<draw_kernel<true>, InitialDraw, float*, int64_t, bool>
                                   : launch<draw_kernel<false>, InitialDraw, float*, int64_t, bool>;
  const int64_t quads = (draw.first + n - 1) / kQuad - draw.first / kQuad + 1;
  kernel(blocks_for(quads, kDrawThreads), kDrawThreads, draw, out, n,
         draw.first % kQuad == 0 && aligned<kQuad>(out));
}

}  // namespace lockstep::core
