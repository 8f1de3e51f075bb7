// What an audit of the state at rest says: weights, moments, and the weights that ranks gather from
// each other. Pure; StateAudit (core/sharding/state_audit.h) finds what is judged here.
//
// 1. A rank of whose own tensors one has changed since the end of the last update, or since it was
//    loaded, is wrong: its memory.
// 2. Ranks that hold the same and differ: what most of them hold is right, the others are wrong.
//    Where two values have equally many ranks, nobody is named.
// 3. What a gather brought must be what its owner holds. Where one rank received something else, it
//    is named: its memory, or the wire to it. Where several did so from the same owner, that one is
//    named, for what it sends.
// 4. In two legs (core/comm/two_legs.h) a rank gets an owner's part from the one of its own group
//    that has the owner's place. What that one received wrongly explains what it passed on.
// 5. A rank of rule 1 takes no part in rules 2 and 3: what others hold or received beside its state
//    is explained.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/audit/verdict.h"

namespace lockstep::core {

enum class StateFault : uint64_t { kNone, kMemory, kOutvoted, kContradicted, kReceived };

// What a rank holds of a unit.
enum class StateTensor : uint64_t { kWeights, kFirstMoment, kSecondMoment, kGathered };
inline constexpr size_t kStateTensors = 4;

// What a rank says of itself: the first one that applies, with its first tensor.
struct StateReport {
  StateFault fault = StateFault::kNone;
  uint64_t unit = 0;
  StateTensor tensor = StateTensor::kWeights;
  int source = 0;  // kReceived: from which rank
};

// `reports`: by rank. `group`: consecutive ranks that gather from others together; 1: there is one
// leg.
AuditVerdict judge_state(std::span<const StateReport> reports, int group);
// For people: what was found of the first ranks that say something. `units`: names.
std::string state_difference(std::span<const StateReport> reports,
                             std::span<const std::string> units);

}  // namespace lockstep::core
