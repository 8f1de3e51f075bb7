#include "core/kernels/initial_kernels.h"

#include <algorithm>

#include "core/kernels/kernel_math.h"
#include "core/kernels/parallel.h"

namespace lockstep::core {
namespace {

constexpr int64_t kDrawn = 4 * kLanes;  // elements at once
constexpr int64_t kGrain = (1 << 14) / kDrawn;

// Elements 4 quad … 4 quad + kDrawn - 1. `flatten`: a call would keep the loop scalar.
LOCKSTEP_VECTOR_CLONES
[[gnu::flatten]] void normal_run(const InitialDraw& draw, uint64_t quad, float* out) {
  uint32_t words[4][kLanes];
  philox_lanes(draw.key, 0, quad, words);
  for (int w = 0; w < 4; w += 2) {
    double of_radius[kLanes], of_angle[kLanes], first[kLanes], second[kLanes];
    for (int64_t l = 0; l < kLanes; ++l) {
      of_radius[l] = unit_interval(words[w][l]);
      of_angle[l] = unit_interval(words[w + 1][l]);
    }
#pragma GCC ivdep
    for (int64_t l = 0; l < kLanes; ++l) {
      const NormalPair pair = normal_pair(of_radius[l], of_angle[l]);
      const double radius = __builtin_sqrt(pair.squared_radius);
      first[l] = draw.scale * (radius * pair.angle.cos);
      second[l] = draw.scale * (radius * pair.angle.sin);
    }
    for (int64_t l = 0; l < kLanes; ++l) {
      out[4 * l + w] = static_cast<float>(first[l]);
      out[4 * l + w + 1] = static_cast<float>(second[l]);
    }
  }
}

LOCKSTEP_VECTOR_CLONES
void uniform_run(const InitialDraw& draw, uint64_t quad, float* out) {
  uint32_t words[4][kLanes];
  philox_lanes(draw.key, 0, quad, words);
  for (int64_t l = 0; l < kLanes; ++l)
    for (int w = 0; w < 4; ++w)
      out[4 * l + w] = static_cast<float>(draw.scale * uniform_number(words[w][l]));
}

}  // namespace

template <>
void draw_initial<OnCpu>(const InitialDraw& draw, float* out, int64_t n) {
  const int64_t end = draw.first + n, first_run = draw.first / kDrawn;
  parallel_ranges((end + kDrawn - 1) / kDrawn - first_run, kGrain, [&](int64_t from, int64_t to) {
    float values[kDrawn];
    for (int64_t at = (first_run + from) * kDrawn; at < (first_run + to) * kDrawn; at += kDrawn) {
      (draw.uniform ? uniform_run : normal_run)(draw, static_cast<uint64_t>(at / 4), values);
      const int64_t own = std::max(at, draw.first), own_end = std::min(at + kDrawn, end);
      std::copy(values + (own - at), values + (own_end - at), out + (own - draw.first));
    }
  });
}

}  // namespace lockstep::core
