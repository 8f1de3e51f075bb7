#include "cli/compare/difference.h"

#include <algorithm>
#include <cmath>

namespace lockstep::cli {
namespace {

void count_step(const StepRecord& a, const StepRecord& b, Difference& result) {
  if (result.common_steps++ == 0) result.first_step = a.step;
  result.last_step = a.step;
  if (!a.exact || !b.exact) result.exact = false;
  if (identical(a, b)) {
    ++result.identical_steps;
  } else if (!result.first_different_step) {
    result.first_different_step = a.step;
  }
  if (same_bits(a.loss, b.loss)) return;  // also two NaNs of one kind
  const double gap = std::abs(a.loss - b.loss);
  // Once NaN, always NaN: a comparison with it is false.
  if (!(gap <= result.max_loss) && !std::isnan(result.max_loss)) {
    result.max_loss = gap;
    result.max_loss_step = a.step;
  }
  const double relative = gap / std::max(std::abs(a.loss), std::abs(b.loss));
  if (!(relative <= result.max_relative)) result.max_relative = relative;
}

}  // namespace

bool identical(const StepRecord& a, const StepRecord& b) {
  if (!same_bits(a.loss, b.loss)) return false;
  return !a.grad_norm || !b.grad_norm || same_bits(*a.grad_norm, *b.grad_norm);
}

Difference difference(const RunLog& reference, const RunLog& run) {
  Difference result;
  result.exact = true;
  // Both are sorted by step.
  auto a = reference.steps.begin();
  for (const StepRecord& b : run.steps) {
    while (a != reference.steps.end() && a->step < b.step) ++a;
    if (a == reference.steps.end()) break;
    if (a->step == b.step) count_step(*a, b, result);
  }
  return result;
}

}  // namespace lockstep::cli
