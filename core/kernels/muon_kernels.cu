// The arithmetic is muon_kernels.cc's, operation by operation: nvcc contracts nothing
// (--fmad=false), and fmaf is one rounding on every device.
#include "core/kernels/muon_kernels.h"

#include "core/kernels/cuda_math.cuh"

namespace lockstep::core {

using namespace cuda;

namespace {

__device__ float lerp(const Lerp& way, float start, float end) {
  return fmaf(way.share, end - start, way.near_start ? start : end);
}

}  // namespace

template <>
void muon_momentum<OnCuda>(const MuonStep& s, const float* grad, float* m, Bf16* out, int64_t n) {
  const MuonStep step = s;
  for_each(n, [=] __device__(int64_t i) {
    const float g = grad[i] * step.clip;
    const float m_new = lerp(step.to_gradient, m[i], g);
    m[i] = m_new;
    if (out != nullptr) store(out[i], lerp(step.to_momentum, g, m_new));
  });
}

template <>
void muon_update<OnCuda>(const MuonStep& s, const Bf16* update, float* master, int64_t n) {
  const float keep = s.keep, step_size = s.step_size;
  for_each(n, [=] __device__(int64_t i) {
    master[i] = fmaf(-step_size, load(update[i]), master[i] * keep);
  });
}

}  // namespace lockstep::core
