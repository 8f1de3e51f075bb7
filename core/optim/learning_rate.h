// The learning rate over a run's steps.
#pragma once

#include <cstdint>

#include "config/choices.h"

namespace lockstep::core {

// Learning rate of step t (1-based): linear warm-up to `peak`, then cosine, linear or constant to
// min_factor * peak at total_steps.
double learning_rate(double peak, int64_t warmup_steps, int64_t total_steps, LrDecay decay_type,
                     double min_factor, int64_t t);

}  // namespace lockstep::core
