// What differs between two runs, step by step.
#pragma once

#include <cstdint>
#include <optional>

#include "cli/compare/run_log.h"

namespace lockstep::cli {

// One run beside the reference, over the steps that both logged.
struct Difference {
  int64_t common_steps = 0, first_step = 0, last_step = 0;
  double max_loss = 0,
         max_relative = 0;  // nan when one of the losses is not a number, the other is
  int64_t max_loss_step = 0;
  bool exact = false;           // both sides are exact, so that "identical" means bits
  int64_t identical_steps = 0;  // loss and, where both have it, gradient norm
  std::optional<int64_t> first_different_step;

  bool identical() const { return identical_steps == common_steps; }
};
// Loss and, where both have it, gradient norm: the same bits.
bool identical(const StepRecord& a, const StepRecord& b);
Difference difference(const RunLog& reference, const RunLog& run);

}  // namespace lockstep::cli
