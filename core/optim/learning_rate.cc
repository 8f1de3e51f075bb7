#include "core/optim/learning_rate.h"

#include <algorithm>
#include <numbers>

#include "base/elementary.h"

namespace lockstep::core {

double learning_rate(double peak, int64_t warmup_steps, int64_t total_steps, LrDecay decay_type,
                     double min_factor, int64_t t) {
  if (t <= warmup_steps) return peak * static_cast<double>(t) / static_cast<double>(warmup_steps);
  if (decay_type == LrDecay::kNone || total_steps <= warmup_steps) return peak;
  const double progress = std::min(
      1.0, static_cast<double>(t - warmup_steps) / static_cast<double>(total_steps - warmup_steps));
  const double shape = decay_type == LrDecay::kLinear
                           ? 1.0 - progress
                           : 0.5 * (1.0 + elementary::cos(std::numbers::pi * progress));
  return peak * (min_factor + (1.0 - min_factor) * shape);
}

}  // namespace lockstep::core
