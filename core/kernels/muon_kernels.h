// What Muon (Jordan et al. 2024) does to single elements, before and after its matrix is
// orthogonalized (core/optim/newton_schulz.h), as torch.optim.Muon computes it. Correctly rounded
// operations and explicit fma, without contraction: the same bits at any cut and on any device. No
// Torch.
#pragma once

#include <cstdint>

#include "core/kernels/kernel_types.h"

namespace lockstep::core {

// From start to end, as at::lerp goes in fp32: fma(share, end - start, nearer of the two).
struct Lerp {
  float share;
  bool near_start;
};

struct MuonStep {
  float clip;        // the gradient is multiplied by this first
  Lerp to_gradient;  // 1 - momentum
  Lerp to_momentum;  // momentum: Nesterov's
  float keep;        // 1 - lr * weight_decay
  float step_size;   // lr, adjusted to the matrix
  // Of a matrix [rows, cols]. The update of an orthogonalized matrix has elements whose root mean
  // square is about 1 / sqrt(max(rows, cols)); lr times 0.2 sqrt(max(rows, cols)) makes that what
  // AdamW's is at the same lr (Liu et al. 2025; torch's match_rms_adamw). In fp64, rounded once.
  static MuonStep create(double lr, double momentum, double weight_decay, double clip, int64_t rows,
                         int64_t cols);
};

// m [n] moves towards the gradient, in place; out [n] = what is orthogonalized: the gradient moved
// towards m (Nesterov). Without `out` (null), m alone.
template <typename Place>
void muon_momentum(const MuonStep& step, const float* grad, float* m, Bf16* out, int64_t n);

// master [n] decays, and then moves against `update` [n]; copy [n] becomes the new weights, rounded
// once, where it is not null.
template <typename Place>
void muon_update(const MuonStep& step, const Bf16* update, float* master, Bf16* copy, int64_t n);

}  // namespace lockstep::core
