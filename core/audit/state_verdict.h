// What an audit of the state at rest says: weights, moments, the weights that ranks gather from
// each other, and the gradients that they ship to each other. Pure; StateAudit
// (core/sharding/state_audit.h) finds what is judged here.
//
// 1. A rank of whose own tensors one has changed since the end of the last update, or since it was
//    loaded, is wrong: its memory.
// 2. Ranks that hold the same and differ: what most of them hold is right, the others are wrong.
//    Where two values have equally many ranks, nobody is named.
// 3. What a gather brought must be what its owner holds. Where one rank took something else from
//    another one, it is named: its memory, or the wire to it. Where several took something else
//    from the same rank, that one is named, for what it sends.
// 4. A rank takes a part from its owner. But in two legs (core/comm/two_legs.h) it takes that of an
//    owner in another group, which has not its own place there, from the rank of its own group that
//    has the owner's place. What that one received wrongly explains what it passed on. Where it
//    received it rightly, it is the one that sends, in rule 3.
// 5. Nobody is named in rules 3 and 4 where who sent to one rank, or passed something on, has a
//    fault of another kind or from another source to report. One of them who is named otherwise,
//    or an owner who is, explains it.
// 6. A rank of rule 1 takes no part in rules 2 and 3: what others hold or received beside its state
//    is explained.
// 7. A part of a gradient that came must be what its sender shipped. Each leg of an exchange is
//    compared for itself, so that who sends is who passes on; else it is as in rules 3 and 5.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/audit/verdict.h"

namespace lockstep::core {

enum class StateFault : uint64_t {
  kNone,
  kMemory,
  kOutvoted,
  kContradicted,
  kContradictedAside,  // the same, and no slot is computed from what differs
  kReceived,
  kExchanged,  // a part of a gradient
};

// What a rank holds of a unit.
enum class StateTensor : uint64_t { kWeights, kFirstMoment, kSecondMoment, kGathered };
inline constexpr size_t kStateTensors = 4;

// What a rank says of itself: the first one that applies, with its first tensor.
struct StateReport {
  StateFault fault = StateFault::kNone;
  uint64_t unit = 0;
  StateTensor tensor = StateTensor::kWeights;
  int source = 0;  // kReceived, kExchanged: from which rank
};

// Where the fingerprint of a tensor of a unit stands among those of all.
constexpr size_t state_place(size_t unit, StateTensor tensor) {
  return unit * kStateTensors + static_cast<size_t>(tensor);
}
StateReport report_at(StateFault fault, size_t place);

// Rule 2, as the one of `ranks` says it. `answers`: by place, the fingerprints of those that hold
// the same.
StateReport report_of_copies(int rank, std::span<const std::vector<AuditAnswer>> answers,
                             int ranks);

// `reports`: by rank. `group`: consecutive ranks that gather from others together; 1, or all: there
// is one leg.
AuditVerdict judge_state(std::span<const StateReport> reports, int group);
// Whether a slot may have been computed from what these have found.
bool may_explain_slots(std::span<const StateReport> reports);
// For people: what was found of the first ranks that say something. `units`: names.
std::string state_difference(std::span<const StateReport> reports, int group,
                             std::span<const std::string> units);

}  // namespace lockstep::core
