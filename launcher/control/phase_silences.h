// How long progress pages usually stay unchanged, by phase. It says when a silence is a hang.
#pragma once

#include <array>
#include <cstdint>

#include "worker_link/progress_page.h"

namespace lockstep::launcher::control {

class PhaseSilences {
 public:
  // A page has changed, in this phase, after so long.
  void note(Phase phase, int64_t silent_ns);
  // A silence of this length is a hang: a multiple of the longest known one, once enough are known,
  // and never more than `most_ns`.
  int64_t hang_ns(Phase phase, int64_t most_ns) const;

 private:
  struct Known {
    int64_t count = 0, longest_ns = 0;
  };
  std::array<Known, kPhases> known_;
};

}  // namespace lockstep::launcher::control
