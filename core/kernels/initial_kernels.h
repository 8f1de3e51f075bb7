// Initial values of a parameter, drawn by counter: functions of (key, element), the same bits at
// any cut and on any device. Elements 4 q … 4 q + 3 are made of the words of Philox(key, 0, q). No
// Torch.
#pragma once

#include <numbers>

#include "base/elementary.cuh"
#include "base/hash.h"
#include "core/kernels/kernel_types.h"

namespace lockstep::core {

struct InitialDraw {
  uint64_t key;   // of the parameter
  int64_t first;  // the run's place in it
  double scale;   // their standard deviation, or where they are uniform their bound
  bool uniform;   // from [-scale, scale); else normal
};

// out [n].
template <typename Place>
void draw_initial(const InitialDraw& draw, float* out, int64_t n);

// What they are made of. (0, 1]: a logarithm of it is finite.
constexpr double unit_interval(uint32_t word) {
  return (static_cast<double>(word) + 1.0) / 4294967296.0;
}
// Two normal numbers by Box-Muller, of two numbers from there: the root of squared_radius times cos
// and sin.
struct NormalPair {
  double squared_radius;
  elementary::SinCos angle;
};
constexpr NormalPair normal_pair(double of_radius, double of_angle) {
  namespace pairs = elementary::pairs;
  return {-2.0 * pairs::rounded(pairs::log(of_radius)),
          pairs::sin_cos(2.0 * std::numbers::pi * of_angle)};
}
// [-1, 1).
constexpr double uniform_number(uint32_t word) {
  return static_cast<double>(word) / 2147483648.0 - 1.0;
}

}  // namespace lockstep::core
