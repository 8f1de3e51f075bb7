// What the audit of a step says, of what was computed and of the state at rest. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/audit/verdict.h"

namespace lockstep::core {

// What came of the one slot that all ranks computed (audit.slot): as most of them say, else as the
// lowest rank says.
struct AuditedSlot {
  int64_t slot = 0;
  double loss = 0;                                          // sum over its valid tokens
  std::vector<std::pair<std::string, uint64_t>> gradients;  // by unit, in the order of backward
};

struct StepAudit {
  AuditVerdict verdict;
  int64_t rounds = 0;      // computed again
  std::string difference;  // for people: where results differ first; "": they do not
  bool of_state = false;   // what differs is what ranks hold, not what they computed
  // Of the state: slots are computed from what differs.
  bool explains_slots = true;
  std::optional<AuditedSlot> slot = {};
};

// What follows from both. A wrong state is named, and not what was computed from it. But where it
// leaves open who of some ranks is wrong, and no slot is computed from what differs, those of them
// that compute wrongly are named.
StepAudit joined(const StepAudit& computing, const StepAudit& state);

}  // namespace lockstep::core
