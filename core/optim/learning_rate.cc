#include "core/optim/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/elementary.h"

namespace lockstep::core {

namespace {

// Of the way from the peak to the last rate, how much is left after `progress` of the decay.
double left_after(double progress, LrDecay decay_type) {
  switch (decay_type) {
    case LrDecay::kCosine: return 0.5 * (1.0 + elementary::cos(std::numbers::pi * progress));
    case LrDecay::kLinear: return 1.0 - progress;
    case LrDecay::kSqrt: return 1.0 - std::sqrt(progress);
    case LrDecay::kNone: break;
  }
  return 1.0;
}

// The last step at the peak.
int64_t stable_until(const LrSchedulerConfig& s) {
  if (s.decay_ratio == 0) return s.warmup_steps;
  const int64_t decay = std::llround(s.decay_ratio * static_cast<double>(s.total_steps));
  return std::max(s.warmup_steps, s.total_steps - decay);
}

}  // namespace

double learning_rate(double peak, const LrSchedulerConfig& s, int64_t t) {
  if (t <= s.warmup_steps)
    return peak * static_cast<double>(t) / static_cast<double>(s.warmup_steps);
  const int64_t stable = stable_until(s);
  if (t <= stable || s.total_steps <= stable) return peak;
  const double progress =
      std::min(1.0, static_cast<double>(t - stable) / static_cast<double>(s.total_steps - stable));
  return peak * (s.min_lr_factor + (1.0 - s.min_lr_factor) * left_after(progress, s.decay_type));
}

}  // namespace lockstep::core
