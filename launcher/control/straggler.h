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
// `slot_us`: by rank, Progress::slot_us; 0 is not known. It must take half as long again as the
// others.
std::optional<Straggler> find_straggler(const std::vector<int64_t>& slot_us);
// Watches for a rank that is slow for ten steps on end.
class SlowRank {
 public:
  // The rank, at its tenth step. Ranks of a step that was looked at before are not looked at again.
  std::optional<Straggler> look(int64_t step, const std::vector<int64_t>& slot_us);

 private:
  int64_t rank_ = -1, steps_ = 0;  // who is slow, for so many steps
  int64_t step_ = -1;              // the last one
};
// "slow: 812 ms for a slot, the others 400 ms"
std::string straggler_text(const Straggler& straggler);

}  // namespace lockstep::launcher::control
