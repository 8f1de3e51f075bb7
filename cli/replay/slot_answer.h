// What `lockstep replay --slot S` says: a line of what this machine computed for one slot of a
// step, which is the same on every sound machine of its kind, and whether its ranks agree.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/replay/replay_difference.h"
#include "config/config.h"

namespace lockstep::cli {

// The rank that had the slot in a step of a run of this config on `world_size` ranks; nothing: the
// run did not log how many, or the slot map goes by nodes, which it does not log.
std::optional<int> rank_of_slot(const Config& config, int64_t world_size, int64_t slot);

// `replayed`: a step of the replay. `logged`: of the run, with the config that it had. Errors:
// kConfig: the replay has audited no slot there.
Result<std::string> slot_line(const StepRecord& replayed, const StepRecord& logged,
                              const Config& config);

// The first step in which the ranks of this machine disagree, who and where, in words for a person;
// "": in none.
std::string slot_disagreement(const Steps& replayed);

}  // namespace lockstep::cli
