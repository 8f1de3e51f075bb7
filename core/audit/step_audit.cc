#include "core/audit/step_audit.h"

#include <algorithm>

#include "base/text.h"

namespace lockstep::core {

StepAudit joined(const StepAudit& computing, const StepAudit& state) {
  if (state.verdict.same) return computing;
  const std::vector<int>&named = computing.verdict.wrong, &open = state.verdict.undecided;
  const bool decides = state.verdict.wrong.empty() && !state.explains_slots && !named.empty() &&
                       std::includes(open.begin(), open.end(), named.begin(), named.end());
  StepAudit both = decides ? computing : state;
  both.rounds = computing.rounds;
  both.slot = computing.slot;
  if (decides) both.difference = text(computing.difference, "; ", state.difference);
  return both;
}

}  // namespace lockstep::core
