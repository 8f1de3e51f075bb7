// The arithmetic is muon_kernels.cc's, operation by operation: nvcc contracts nothing
// (--fmad=false), and fmaf is one rounding on every device.
#include "core/kernels/muon_kernels.h"

#include "core/kernels/cuda_math.cuh"

namespace lockstep::core {

using namespace cuda;

namespace {

constexpr int kRun = kRunOf<float>;

__device__ float lerp(const Lerp& way, float start, float end) {
  return fmaf(way.share, end - start, way.near_start ? start : end);
}

}  // namespace

template <>
void muon_momentum<OnCuda>(const MuonStep& s, const float* grad, float* m, Bf16* out, int64_t n) {
  const MuonStep step = s;
  for_each_run<kRun>(n, aligned<kRun>(grad, m, out), [=] __device__(Run<kRun> run) {
    const auto moved = [=](float given, float& momentum) {
      const float g = given * step.clip;
      momentum = lerp(step.to_gradient, momentum, g);
      return lerp(step.to_momentum, g, momentum);
    };
    if (out == nullptr) {
      each_of(
          run, [=](float g, float& momentum) { moved(g, momentum); }, grad, m);
    } else {
      each_of(
          run, [=](float g, float& momentum, float& to) { to = moved(g, momentum); }, grad, m, out);
    }
  });
}

template <>
void muon_update<OnCuda>(const MuonStep& s, const Bf16* update, float* master, Bf16* copy,
                         int64_t n) {
  const float keep = s.keep, step_size = s.step_size;
  for_each_run<kRun>(n, aligned<kRun>(update, master, copy), [=] __device__(Run<kRun> run) {
    const auto moved = [=](float moves, float weight) {
      return fmaf(-step_size, moves, weight * keep);
    };
    if (copy == nullptr) {
      each_of(
          run, [=](float moves, float& weight) { weight = moved(moves, weight); }, update, master);
    } else {
      each_of(
          run, [=](float moves, float& weight, float& to) { to = weight = moved(moves, weight); },
          update, master, copy);
    }
  });
}

}  // namespace lockstep::core
