#include "launcher/control/phase_silences.h"

#include <algorithm>

#include "base/check.h"

namespace lockstep::launcher::control {
namespace {

constexpr int64_t kKnownFrom = 20, kHangFactor = 20;
constexpr int64_t kLeastHangNs = 60'000'000'000;  // a busy file system may take that long

}  // namespace

void PhaseSilences::note(Phase phase, int64_t silent_ns) {
  LOCKSTEP_CHECK(silent_ns >= 0, "silent for ", silent_ns);
  Known& known = known_[static_cast<size_t>(phase) % kPhases];
  ++known.count;
  known.longest_ns = std::max(known.longest_ns, silent_ns);
}

int64_t PhaseSilences::hang_ns(Phase phase, int64_t most_ns) const {
  const Known& known = known_[static_cast<size_t>(phase) % kPhases];
  if (known.count < kKnownFrom) return most_ns;
  return std::min(most_ns, std::max(kLeastHangNs, kHangFactor * known.longest_ns));
}

}  // namespace lockstep::launcher::control
