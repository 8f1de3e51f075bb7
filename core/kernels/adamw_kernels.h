// AdamW (Loshchilov & Hutter 2019) on runs of elements, elementwise in correctly rounded
// operations without contraction: the same bits at any cut, on any instruction set and
// any device, so that offload changes nothing. No Torch.
#pragma once

#include <cstdint>
#include <span>

#include "core/kernels/kernel_types.h"
#include "layout/slot_map.h"

namespace lockstep::core {

struct AdamWStep {
  float lr, beta1, beta2, eps, weight_decay;
  float clip;         // the gradient is multiplied by this first
  float correction1;  // 1 - beta1^t
  float correction2;  // sqrt(1 - beta2^t)
  int64_t t;          // the step, from 1
  // t counts from 1. Computed in fp64, rounded once.
  static AdamWStep create(double lr, double beta1, double beta2, double eps, double weight_decay,
                          double clip, int64_t t);
};

// Rounding to bf16 by chance: up with the probability of the part that is cut off, so that the mean
// over many draws is the value. `random`: its lower 16 bits count. A finite value never becomes
// infinite: what would is the largest finite one. Infinity and NaN stay.
constexpr uint16_t stochastic_bf16(float value, uint32_t random) {
  const uint32_t word = __builtin_bit_cast(uint32_t, value);
  const uint32_t size = word & 0x7fffffffu, most = 0x7f7fffffu;
  const uint32_t moved = size + (random & 0xffffu);
  const uint32_t kept =
      size > most ? size | (size > 0x7f800000u ? 0x400000u : 0u) : (moved > most ? most : moved);
  return static_cast<uint16_t>(((word & 0x80000000u) | kept) >> 16);
}

// What bits the moments of a step are rounded by: a function of the tensor's key, the step, the
// element's place in the whole tensor, and which moment it is, so that no cut changes them. Element
// e = 64 b + 16 w + l is rounded by word w of Philox(key, t, 16 b + l): m by its lower half, v by
// its upper one.
struct MomentDraw {
  uint64_t key;   // of the tensor
  int64_t first;  // the run's place in it: a multiple of kMomentRun
};
inline constexpr int64_t kMomentRun = 64;

// Elements of a parameter that an update takes: n of each array. Moment is float or Bf16.
template <typename Moment>
struct AdamWRun {
  const float* grad;
  float* master;
  Moment *m, *v;
  Bf16* copy;  // becomes the new weights, rounded once; null: there is none
  int64_t n;
  MomentDraw draw;  // of moments in bf16
  bool decays;
};

// master, m, v are updated in place from grad. Moments in bf16 are widened, the weights take the
// new fp32 moments, and what is kept of these is rounded by stochastic_bf16. On a device many runs
// are one launch.
template <typename Place, typename Moment>
void adamw_update(const AdamWStep& step, std::span<const AdamWRun<Moment>> runs);

// grad *= scale; then sums_out[i] = fp64 sum of squares of tile i (4096 elements each), 8 lanes in
// a fixed order.
template <typename Place>
void scale_and_square_tiles(float* grad, float scale, int64_t tiles, double* sums_out);
// sums_out[i] = the leaves of runs[i], two neighbours at a time, then two such sums, and so on. A
// run is a power of two long. Requires: no leaf is negative, or -0. On a device many runs are one
// launch.
template <typename Place>
void sum_subtrees(const double* leaves, std::span<const layout::SlotRun> runs, double* sums_out);

}  // namespace lockstep::core
