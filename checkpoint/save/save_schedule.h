// When a save is due: a pure decision from what every rank knows alike, so that all decide alike.
#pragma once

#include <cstdint>

namespace lockstep::checkpoint {

enum class Due { kNo, kEphemeral, kPermanent };

struct SaveSchedule {
  int64_t interval = 0;            // steps between permanent saves; 0: none by steps
  int64_t ephemeral_interval = 0;  // steps between ephemeral ones; 0: none
};

// After `step`. `must`: the last step, or a stop. `time_is_up`: minutes decide as well, on one
// rank's clock; that rank's word must have reached all.
inline Due save_due(const SaveSchedule& schedule, int64_t step, bool must, bool time_is_up) {
  const auto at = [step](int64_t interval) { return interval > 0 && step % interval == 0; };
  if (must || time_is_up || at(schedule.interval)) return Due::kPermanent;
  return at(schedule.ephemeral_interval) ? Due::kEphemeral : Due::kNo;
}

}  // namespace lockstep::checkpoint
