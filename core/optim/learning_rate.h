// The learning rate over a run's steps.
#pragma once

#include <cstdint>

#include "config/config_training.h"

namespace lockstep::core {

// Learning rate of step t (1-based): linear warm-up to `peak`, then `peak`, then, in the last
// decay_ratio * total_steps steps but never before the warm-up's end, down to min_lr_factor * peak
// at total_steps, where it stays. Requires: total_steps is resolved (not 0).
double learning_rate(double peak, const LrSchedulerConfig& schedule, int64_t t);

}  // namespace lockstep::core
