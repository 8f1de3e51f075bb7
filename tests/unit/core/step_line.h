// A step as the tests of core compare it.
#pragma once

#include <string>

#include "base/hash.h"
#include "base/text.h"
#include "core/train/training_step.h"

namespace lockstep::core {

// What a step came to: loss, gradient norm, digests.
inline std::string line_of(const StepOutcome& outcome) {
  std::string line = text(hex_float(outcome.loss), " ", hex_float(outcome.grad_norm));
  for (const auto& digests : {outcome.digests.weights, outcome.digests.gradients})
    for (const uint64_t digest : digests) line += " " + hex64(digest);
  return line;
}

}  // namespace lockstep::core
