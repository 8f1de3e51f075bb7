// What the validations of a run have said so far: part of its state, so that a run which was killed
// keeps the same best step, and ends early at the same step, as one that was not. No Torch.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

namespace lockstep::core {

struct Validations {
  int64_t step = -1;                                       // of the last one; -1: there was none
  double loss = std::numeric_limits<double>::quiet_NaN();  // of that one
  int64_t best_step = -1;                                  // -1: none was finite
  double best_loss = std::numeric_limits<double>::infinity();
  int64_t without_gain = 0;  // in a row, up to the last one

  // True: it is the best so far. One that is not finite, or as good as the best, is not.
  bool add(int64_t at, double value) {
    step = at;
    loss = value;
    const bool gained = std::isfinite(value) && value < best_loss;
    without_gain = gained ? 0 : without_gain + 1;
    if (!gained) return false;
    best_step = at;
    best_loss = value;
    return true;
  }
  // Are so many in a row without gain that `patience` (0: any number) is over?
  bool exhausted(int64_t patience) const { return patience > 0 && without_gain >= patience; }
};

}  // namespace lockstep::core
