// 64-bit words of every rank, for every rank.
#pragma once

#include <cstdint>
#include <vector>

#include "core/comm/communicator.h"

namespace lockstep::core {

// Those of all ranks one behind the other, by rank. Collective. Errors: those of Pending::wait.
// Requires: `mine` has the same size on every rank.
Result<std::vector<uint64_t>> gather_words(Gatherer& group, const std::vector<uint64_t>& mine);

}  // namespace lockstep::core
