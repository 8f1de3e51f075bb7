// A rank that computes more slowly than the others makes all of them wait: a hot or throttled
// device, a neighbour on the same cores, a slow disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::launcher::control {

struct Straggler {
  size_t rank = 0;
  int64_t slot_us = 0, usual_us = 0;  // for one slot: it; the median of the others
};
inline constexpr double kSlowFactor = 1.5;
// The slowest rank, where it takes `factor` times the others' time or more. `slot_us`: by rank,
// Progress::slot_us; 0 is not known.
std::optional<Straggler> find_straggler(const std::vector<int64_t>& slot_us,
                                        double factor = kSlowFactor);

// Watches for a rank that stays slow. Of each rank it keeps in what share of the last steps it was
// slow; older steps count less. A rank that is slow in each step reaches four fifths after
// `seconds`. A rank that is slow now and then never does.
class SlowRank {
 public:
  // Requires: factor > 1, seconds > 0.
  SlowRank(double factor, double seconds);
  // Who has been slow for so long and still is: the slowest of those. A step is looked at once, and
  // with other ranks than before all begins anew. Time: monotonic nanoseconds.
  std::optional<Straggler> look(int64_t step, const std::vector<int64_t>& slot_us, int64_t now_ns);

 private:
  double factor_, seconds_;
  std::vector<double> shares_;          // by rank
  int64_t step_ = -1, looked_ns_ = -1;  // the last one; -1: none
};
// "slow: 812 ms for a slot, the others 400 ms"
std::string straggler_text(const Straggler& straggler);

}  // namespace lockstep::launcher::control
