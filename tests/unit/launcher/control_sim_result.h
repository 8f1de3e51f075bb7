// What a simulated job (control_sim.h) is asked for and gives.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::launcher::control {

inline constexpr int kRestartAll = 2;  // a fault's number: all that are down start again

struct SimNodes {
  int64_t most = 4096;   // the seed says how many, about as often 2 or 3 as 64 to 127
  bool exactly = false;  // as many as that, whatever the seed says
};

struct SimResult {
  std::string broken;  // the first rule that was broken; empty: none
  int64_t nodes = 0, generations = 0, takeovers = 0, steps = 0, events = 0, faults = 0, ends = 0;
  int64_t commits = 0, refused = 0, barred = 0,
          changes = 0;  // refused: by a rank 0 whose generation was over
};

}  // namespace lockstep::launcher::control
